"""Records and explanations as one offline HTML file each."""
