"""Data other people recorded: S&P 100 and ABIDE; loaders, their statistics and figures."""
