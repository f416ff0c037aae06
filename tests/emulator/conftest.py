from launching import compute, launch, tier
