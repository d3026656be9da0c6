"""DATA → THE BEST OF SEVERAL MODELS: `foretell auto`."""
