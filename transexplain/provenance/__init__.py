"""What a run was made from, and whether it still is: manifests, and verifying."""
