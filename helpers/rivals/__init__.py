"""Learned baselines the paper compares with, one file each."""
