"""Training objectives: log-likelihood with estimators of its integral, noise-contrastive estimation, masked pretraining."""
