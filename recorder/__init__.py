"""Record what a PyTorch training process does, without perturbing it."""
