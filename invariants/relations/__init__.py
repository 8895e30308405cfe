"""The families of laws, one module each."""
