"""A-NHP's training loss and its gradients in a few Triton kernels, for the plain model in float32 on CUDA.

No tensor of size queries × dimension is written: a tile of queries goes through all layers, the loss and the backward pass at
once.
"""
