// A frame of a video as a picture, with the box of the thing over it.

import { frameAddress } from "./api.js";
import { boxAt, clock, make } from "./moments.js";

const SVG = "http://www.w3.org/2000/svg";

// The frame of `seen` at a time, at most `width` pixels wide, with the track's box.
export function boxedFrame(seen, track, time, { width = 400, isGuess = false } = {}) {
  const size = { width: seen.answer.width, height: seen.answer.height };
  const image = make("img", { src: frameAddress(seen.video, time, width), alt: "", loading: "lazy", ...size });
  const box = boxAt(track, time);
  return make("span", { className: "boxed" }, image, box ? outline(size, box, isGuess) : null);
}

function outline({ width, height }, [x1, y1, x2, y2], isGuess) {
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  for (const name of ["rim", isGuess ? "guess" : "answer"]) {
    const size = { width: Math.max(1, x2 - x1), height: Math.max(1, y2 - y1) };
    svg.append(shape("rect", { class: name, x: x1, y: y1, ...size }));
  }
  return svg;
}

export function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// The frame in full size with the box drawn into it, as a JPEG file; a guess is dashed and said to be one.
export async function boxedFile(seen, track, time, name, isGuess) {
  const image = new Image();
  image.src = frameAddress(seen.video, time, 4096);
  await image.decode();
  const canvas = make("canvas", { width: image.naturalWidth, height: image.naturalHeight });
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const box = boxAt(track, time);
  const scale = canvas.width / seen.answer.width;
  const line = Math.max(2, canvas.width / 320);
  for (const [colour, width] of box ? [["rgba(0, 0, 0, .7)", 2 * line], ["#ffd200", line]] : []) {
    const [x1, y1, x2, y2] = box.map((side) => side * scale);
    Object.assign(pen, { strokeStyle: colour, lineWidth: width, lineJoin: "round" });
    pen.setLineDash(isGuess && width === line ? [4 * line, 3 * line] : []);
    pen.strokeRect(x1, y1, x2 - x1, y2 - y1);
  }
  if (isGuess) label(pen, `not seen; best guess ${clock(time)}   score ${track.score.toFixed(2)}`);
  const data = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.9));
  return new File([data], name, { type: "image/jpeg" });
}

// As `caption` of lastseen/words.py, in the lower left corner.
function label(pen, text) {
  const { width, height } = pen.canvas;
  const size = Math.max(12, Math.min(width, height) / 20);
  pen.font = `${size}px sans-serif`;
  pen.fillStyle = "#000000";
  pen.fillRect(0, height - 1.6 * size, Math.min(width, pen.measureText(text).width + size), 1.6 * size);
  pen.fillStyle = "#ffffff";
  pen.fillText(text, size / 2, height - 0.5 * size, width - size);
}
