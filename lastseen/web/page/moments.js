// Times in words, and where a track's box is at any moment. No page in here.

// 65.4 -> 1:05.4
export function clock(time) {
  const tenths = Math.round(time * 10);
  const seconds = ((tenths % 600) / 10).toFixed(1).padStart(4, "0");
  const minutes = Math.floor(tenths / 600) % 60;
  const hours = Math.floor(tenths / 36000);
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${seconds}` : `${minutes}:${seconds}`;
}

// 4210 -> 1 h 10 min
export function duration(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// "2026-11-15T10:30:00+01:00" and so many seconds -> "Sunday 15 November 2026 at 10:30"; a date is only as sure as
// its source. Null if the file claims an impossible one.
export function date(begin, seconds, source) {
  if (begin === null) return "Date unknown";
  const options = { weekday: "long", day: "numeric", month: "long", year: "numeric", hour: "2-digit", minute: "2-digit" };
  const text = new Date(Date.parse(begin) + 1000 * seconds).toLocaleString("en-GB", options);
  return source === "file time" ? `${text}, by the file's date` : text;
}

export function day(text, source) {
  if (text === null) return "date unknown";
  const date = new Date(text).toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" });
  return source === "file time" ? `${date} (the\u00a0file's\u00a0date)` : date;
}

// "14:02" today, else "15 November, 10:30"
export function when(text) {
  const moment = new Date(text);
  const time = moment.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (moment.toDateString() === new Date().toDateString()) return time;
  const isThisYear = moment.getFullYear() === new Date().getFullYear();
  const options = { day: "numeric", month: "long", ...(isThisYear ? {} : { year: "numeric" }) };
  return `${moment.toLocaleDateString("en-GB", options)}, ${time}`;
}

// As ResponseTrack.box_at: interpolated between sampled frames; null outside the track.
export function boxAt(track, time) {
  const boxes = track.boxes;
  const place = time * track.fps - boxes[0].frame;
  if (place < -0.5 || place >= boxes.length - 0.5) return null;
  const inside = Math.min(Math.max(place, 0), boxes.length - 1);
  const low = Math.floor(inside);
  const high = Math.min(low + 1, boxes.length - 1);
  const t = inside - low;
  return ["x1", "y1", "x2", "y2"].map((side) => (1 - t) * boxes[low][side] + t * boxes[high][side]);
}

// Up to `count` moments from a track's first to its last one.
export function momentsOf(track, count) {
  const shown = Math.min(count, track.boxes.length);
  return Array.from({ length: shown }, (_, i) => track.start + (shown > 1 ? (i / (shown - 1)) * (track.end - track.start) : 0));
}

// The middle of a sighting, to show it by: at its ends the thing is often half out of view.
export function middleOf(track) {
  return track.boxes[Math.floor(track.boxes.length / 2)].frame / track.fps;
}

// Round times from 0 to the end, about so many.
export function ticks(end, most) {
  const steps = [0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200];
  const step = steps.find((s) => end / s < most) || 14400;
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, i) => i * step);
}

// An element with properties and children.
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
