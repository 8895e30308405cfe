"""Built-in laws: what holds in every sound training, judged without a reference."""
