"""The benchmark: Penstock and its peers over the same input, measured from outside."""
