"""The rivals of the paper's table, each a model and a procedure for the Localizer (docs/rivals.md).

detector     what the three detectors share: pyramid, proposals, RoIAlign, projector
siamrcnn     the baseline of Ego4D     nfm  negative frames matter     cocoformer  sets of proposals
stark        as the paper's authors ran it, and with positions
tracking     after a detector's peak: particle_filter, nanotrack, or our ends
published    detections that the originals' authors published
"""
