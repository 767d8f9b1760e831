"""What travels: request and response models, the problem body, the operation registry. Pure data; mirrors the wings."""
