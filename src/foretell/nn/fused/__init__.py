"""A-NHP's training loss and its gradients in a few Triton kernels, for models in float32 on CUDA without further options.

No tensor of size queries × dimension is written: all layers, the loss and the backward pass are computed for one tile of queries at
a time.
"""
