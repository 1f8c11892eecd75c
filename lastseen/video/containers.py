"""Which files are opened as video: regular files, in formats that keep everything in the file itself.

Playlists and the like (m3u8, ffconcat, mpd, sdp, numbered pictures) name other files or addresses, which
would be opened too. They are refused.
"""

from __future__ import annotations

import stat
from pathlib import Path

from lastseen.errors import VideoError

HEAD_BYTES = 400  # enough of a file's beginning for all that is checked here
# Formats of libavformat. Sound and text are among them so that an error can say what a file is.
SELF_CONTAINED = (
    "mov,mp4,matroska,webm,avi,mpegts,mpegtsraw,mpeg,asf,asf_o,flv,live_flv,kux,ogg,mxf,mxf_opatom,nut,gxf,rm,"
    "ivr,wtv,ty,nuv,nsv,pva,pmp,dhav,lxf,mtv,mv,vivo,swf,amv,dv,ivf,av1,obu,h264,hevc,vvc,evc,h261,h263,m4v,"
    "mpegvideo,mjpeg,mjpeg_2000,mpjpeg,smjpeg,vc1,vc1test,dirac,dnxhd,cavsvideo,avs2,avs3,avs,apv,ipu,cine,mlv,"
    "ser,r3d,yuv4mpegpipe,gif,apng,webp,jpegxl_anim,flic,smk,bink,roq,film_cpk,4xm,rpl,thp,xmv,moflex,bethsoftvid,"
    "tty,mp3,aac,ac3,eac3,flac,wav,w64,aiff,au,caf,amr,ape,dts,opus,tta,truehd,mlp,wv,jpeg_pipe,png_pipe,bmp_pipe,"
    "webp_pipe,tiff_pipe,gif_pipe,jpegxl_pipe,j2k_pipe,ppm_pipe,pgm_pipe,pbm_pipe,pam_pipe,psd_pipe,svg_pipe,"
    "exr_pipe,hdr_pipe,dds_pipe,dpx_pipe,qoi_pipe,sgi_pipe,pcx_pipe,xbm_pipe,xpm_pipe,sunrast_pipe"
)
ENDINGS = (
    ".mp4",
    ".m4v",
    ".mov",
    ".mkv",
    ".webm",
    ".avi",
    ".ts",
    ".mts",
    ".m2ts",
    ".mpg",
    ".mpeg",
    ".3gp",
)  # of videos in a folder
PICTURES = (b"\xff\xd8\xff", b"\x89PNG", b"BM", b"II*\0", b"MM\0*")
LISTS = (b"#EXTM3U", b"ffconcat", b"v=0", b"[playlist]", b"[Reference]")
KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_kind(path: Path) -> None:
    """Raise VideoError for anything but a regular file (or none): a pipe or a device may never end."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable_file(path, error) from None
    except ValueError:  # a null byte
        raise VideoError(f"{str(path)!r}: no file can have such a name") from None
    if kind != stat.S_IFREG:
        raise VideoError(f"{path}: is {KINDS.get(kind, 'no regular file')}, not a file; give a video file")


def head_of(path: Path) -> bytes:
    """The first bytes of a regular file."""
    check_kind(path)
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError as error:
        raise unreadable_file(path, error) from None


def unreadable_file(path: Path, error: OSError) -> VideoError:
    return VideoError(f"{path}: {str(error.strerror).lower()}; give a video file you may read")


def is_file(path: Path) -> bool:
    """As `Path.is_file`; a name that cannot be one is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """As `Path.is_dir`; a name that cannot be one is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_list(head: bytes) -> bool:
    """Whether a file begins like one that names other files."""
    return head.startswith(LISTS) or b"<MPD" in head or b"<smil" in head


def refused_because(head: bytes) -> str:
    """What to say of a file in a format that is not opened."""
    if is_list(head):
        return "is a list that names other files, not a video; give the video files themselves"
    if head.startswith(PICTURES) or head[8:12] == b"WEBP":
        return "is a picture, not a video; give a video to search"
    return "is not a kind of video that is read; convert it: ffmpeg -i IN OUT.mp4"


def is_video_container(head: bytes) -> bool:
    """Whether the first bytes are those of a known video container."""
    starts = (b"\x1aE\xdf\xa3", b"OggS", b"FLV\x01", b"0&\xb2u", b"\0\0\x01\xba", b"\0\0\x01\xb3")
    is_mp4 = head[4:8] in (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip", b"styp")
    is_avi = head[:4] == b"RIFF" and head[8:12] == b"AVI "
    # MPEG transport streams have a sync byte every 188 bytes, those of camcorders every 192.
    is_ts = head[:1] == b"G" == head[188:189] or head[4:5] == b"G" == head[196:197]
    return head.startswith(starts) or is_mp4 or is_avi or is_ts
