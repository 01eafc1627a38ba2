"""The contract of stores, tried by machines that think of what nobody would."""
