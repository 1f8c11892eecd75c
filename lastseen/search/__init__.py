"""Coarse to fine: a coarse score for every frame, the exact model on the clips that score highest.

    Source --coarse_scores--> ranked clips --Case.run: the exact model--> Drafts --refinement--> answers

A Source is what is searched: a video of an index, or a video file, whose frames are encoded as they are
needed.
"""
