"""`python -m penstock.cli`, for where the `penstock` script is not on PATH."""

from penstock.cli import main

main()
