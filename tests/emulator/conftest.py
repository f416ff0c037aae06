from launching import compute, launch, quick_llvm, tier
