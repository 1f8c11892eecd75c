// Saving and sharing the answer: buttons that stand where the answer is.

import { boxedFile } from "./frame.js";
import { clock, make } from "./moments.js";

const FILES = [
  ["Filmstrip", "/filmstrip.jpg"],
  ["Film", "/film.mp4"],
  ["Report", "/report.html"],
  ["JSON", "?format=json"],
  ["CSV", "?format=csv"],
  ["COCO", "?format=coco"],
  ["MOT", "?format=mot"],
  ["WebVTT", "?format=vtt"],
  ["Label Studio", "?format=label-studio"],
  ["CVAT", "?format=cvat"],
];

// `words` say the answer in one line; `track` is the sighting, or guess, that is shown; `number` is the video's place
// in the answer.
export function actions({ job, number, seen, track, isGuess, words }) {
  const address = `/api/jobs/${job}/answers/${number}`;
  const said = make("span", { className: "muted", role: "status" });
  const link = `${location.origin}/#/questions/${job}`;
  const picture = make("button", { type: "button", id: "save", textContent: "Save the picture" });
  const share = make("button", { type: "button", id: "share" });
  share.textContent = navigator.share ? "Share" : "Copy the link";
  const guess = isGuess ? " guess" : "";
  const name = `${seen.name.replace(/\.[^.]*$/, "")} ${clock(track.end).replaceAll(":", ".")}${guess}.jpg`;
  const file = () => boxedFile(seen, track, track.end, name, isGuess);
  const attempt = (act) => () => act().catch((problem) => {
    if (problem.name !== "AbortError") said.textContent = `That failed: ${problem.message}`; // Abort: closed by the person
  });
  picture.addEventListener("click", attempt(async () => download(await file())));
  share.addEventListener("click", attempt(async () => {
    if (navigator.share) {
      const files = [await file()];
      await navigator.share(navigator.canShare?.({ files }) ? { text: words, files } : { text: words, url: link });
    } else said.replaceChildren(await copied(link));
  }));
  const links = FILES.map(([text, rest]) => make("a", { href: address + rest, download: "", textContent: text }));
  return make(
    "div", { className: "actions" },
    make("div", { className: "row" }, picture, share, said),
    make("details", {}, make("summary", { textContent: "Save as" }), make("div", { className: "row" }, ...links)),
  );
}

// Browsers give the clipboard to this machine's own address and to https only; elsewhere the link is shown to be copied.
async function copied(link) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(link);
    return "Copied.";
  }
  const field = make("input", { readOnly: true, value: link, "aria-label": "The link to this answer" });
  field.addEventListener("focus", () => field.select());
  return field;
}

function download(file) {
  const address = URL.createObjectURL(file);
  make("a", { href: address, download: file.name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
