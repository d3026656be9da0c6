"""A-NHP's training loss and its gradients in a few Triton kernels, for the plain model in float32 on CUDA.

Nothing of size queries × dimension is ever written: a tile of queries is embedded through all layers, scored, and followed back, in one go.
"""
