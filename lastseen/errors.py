"""Every error that a user can cause, each with a message that says what is wrong and what to do.

LastSeenError
├── VideoError         a file that cannot be read as video
├── QueryError         a picture, box or time that cannot be used as a query
├── WeightsError       weights that are missing, damaged or of another model
├── AnnotationError    a malformed VQ2D or EgoTracks annotation file
├── PredictionsError   a malformed challenge (prediction) file
├── TrackError         a malformed answer (ResponseTrack JSON)
├── IndexStoreError    an index that is missing, damaged, full, or of another model or video
├── SynthError         assets that cannot be read, or that no scene can be made of
├── TrainError         a recipe, field or data set that training cannot use
└── OutputError        an output path that cannot be written
"""


class LastSeenError(Exception):
    """Base of all errors that the command line prints as one line."""


class VideoError(LastSeenError):
    pass


class QueryError(LastSeenError):
    pass


class WeightsError(LastSeenError):
    pass


class AnnotationError(LastSeenError):
    pass


class PredictionsError(LastSeenError):
    pass


class TrackError(LastSeenError):
    pass


class IndexStoreError(LastSeenError):
    pass


class SynthError(LastSeenError):
    pass


class TrainError(LastSeenError):
    pass


class OutputError(LastSeenError):
    pass
