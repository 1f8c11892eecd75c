// The page: what is shown, asked and answered. The parts know nothing of each other; this joins them.

import { follow, get, post } from "./api.js";
import { AnswerView } from "./answer.js";
import { Curve } from "./curve.js";
import { Library } from "./library.js";
import { clock, duration, make } from "./moments.js";
import { Screen } from "./screen.js";
import { Thing } from "./thing.js";

const find = (selector) => document.querySelector(selector);
let asked = null; // the job of the question
let answers = null; // to it
let shownNumber = 0; // of the videos of the answer
let guessing = false;

const curve = new Curve(find(".curve"), (time) => screen.seek(time));
const screen = new Screen(find("#stage"), {
  drawn: (box, time) => thing.takeMoment(screen.video, time, box).then(() => screen.follow(screen.track, screen.pen.isGuess)),
  moved: (time) => {
    curve.move(time);
    sayBefore();
  },
});
const thing = new Thing(find("#thing"), find("#mark"), { changed: update, failed: complain });
const library = new Library(find("#library"), {
  opened: (video) => {
    if (!video.file) return;
    clearAnswer();
    thing.fold();
    open(video);
  },
  changed: libraryChanged,
  failed: complain,
  cancel: (job) => post(`/api/jobs/${job}/cancel`).catch(complain),
});
const view = new AnswerView(
  { answer: find("#answer"), filmstrip: find("#filmstrip"), sightings: find("#sightings") },
  {
    choose: (number, track) => {
      if (number !== shownNumber) showAnswer(number);
      showTrack(track);
    },
    guess: () => {
      guessing = true;
      showAnswer(0);
      find("#answer").focus();
    },
    seek: (time) => {
      screen.pause();
      screen.seek(time);
    },
  },
);

function complain(problem) {
  const place = find("#problem");
  place.textContent = problem?.message ?? "";
  place.hidden = !place.textContent;
}

function open(video) {
  screen.load(video);
  library.current = video.id;
  library.draw();
  update();
}

function libraryChanged() {
  const { videos } = library;
  find("#welcome").hidden = videos.length > 0 || library.uploads.size > 0;
  const shown = library.find(screen.video?.id);
  if (!shown) {
    const first = videos.findLast((video) => video.file);
    if (first) open(first);
    else screen.empty();
  }
  update();
}

function update() {
  const isRunning = asked && ["waiting", "running"].includes(asked.state);
  find("#scope").hidden = library.videos.length < 2;
  find("#before-row").hidden = !screen.video;
  find(".left").classList.toggle("marking", thing.marking); // the photo is shown instead of the video
  find("#fold").hidden = !screen.video;
  if (thing.marking) screen.pause();
  sayBefore();
  const button = find("#find");
  button.hidden = Boolean(isRunning);
  button.disabled = !thing.ready || !library.videos.length;
  const place = find("#finding");
  place.hidden = !isRunning;
  if (isRunning) {
    const share = asked.total ? asked.done / asked.total : null;
    const bar = make("progress", { max: 1, "aria-label": "The search" });
    if (share !== null) bar.value = share;
    const left = asked.left === null ? "" : `, ${duration(asked.left)} left`;
    const text = asked.state === "waiting" ? "Waiting until the video is read" : `${asked.step || "Starting"}${left}`;
    const stop = make("button", { type: "button", id: "cancel", textContent: "Cancel", onclick: cancel });
    const had = place.contains(document.activeElement);
    place.replaceChildren(bar, make("div", { className: "line" }, make("span", { className: "grow", textContent: text }), stop));
    if (had) stop.focus();
  }
}

function sayBefore() {
  const shown = thing.marking ? `${clock(screen.time)} in the video` : "the moment shown";
  find("#before-what").textContent = `only before ${shown}`;
}

async function ask() {
  if (find("#find").disabled || find("#find").hidden) return;
  complain(null);
  clearAnswer();
  const everywhere = !find("#scope").hidden && find("input[name=scope]:checked").value === "all";
  const question = { looks: [thing.look], videos: everywhere || !screen.video ? [] : [screen.video.id] };
  if (find("#before").checked && screen.video) question.before = Math.max(0.2, screen.time);
  try {
    screen.pause();
    asked = await post("/api/find", question);
    thing.fold();
    find("#cancel")?.focus();
  } catch (problem) {
    complain(problem);
  }
}

function cancel() {
  if (asked) post(`/api/jobs/${asked.id}/cancel`).catch(complain);
}

function clearAnswer() {
  answers = null;
  guessing = false;
  view.clear();
  curve.clear();
  screen.follow(null);
}

async function jobChanged(job) {
  if (job.kind === "index") {
    library.tell(job);
    if (["done", "failed", "cancelled"].includes(job.state)) {
      await library.refresh().catch(complain);
      if (job.state === "failed") complain(new Error(job.message));
    }
  }
  if (asked?.id !== job.id || ["done", "failed", "cancelled"].includes(asked.state)) return;
  asked = job;
  update();
  if (job.state === "failed") complain(new Error(job.message));
  if (job.state === "cancelled") find("#find").focus();
  if (job.state === "done") {
    try {
      answers = await get(`/api/jobs/${job.id}/answers`);
      showAnswer(0);
      find("#answer").focus({ preventScroll: true });
      find("#answer").scrollIntoView({ block: "nearest", behavior: "smooth" });
    } catch (problem) {
      complain(problem);
    }
  }
}

function showAnswer(number) {
  shownNumber = number;
  const seen = answers.answers[number];
  view.show(asked.id, answers, number, guessing);
  // The video of a guess is shown only when it is asked for.
  if (!seen || (!answers.found && !guessing && seen.video !== screen.video?.id)) return;
  const video = library.find(seen.video);
  if (video?.file) open(video);
  const guesses = guessing && seen.answer.best_guess ? [seen.answer.best_guess] : [];
  const tracks = seen.answer.tracks.length ? seen.answer.tracks : guesses;
  const isGuess = !seen.answer.tracks.length;
  const peaks = tracks.length ? seen.curve.peaks : [];
  curve.show({ ...seen.curve, peaks }, tracks, { isGuess, choose: (n) => showTrack(tracks[n]) });
  if (tracks.length) showTrack(tracks.at(-1));
}

function showTrack(track) {
  const seen = answers.answers[shownNumber];
  const isGuess = !seen.answer.tracks.length;
  view.showMoments(seen, track, isGuess);
  screen.pause();
  screen.follow(track, isGuess);
  screen.seek(track.end);
}

// --- keys, paste, drop ---

document.addEventListener("keydown", (event) => {
  const target = event.target;
  const isTyping = target.closest("input:not([type=range]), textarea, select");
  if (event.key === "Escape") {
    if (asked && !find("#finding").hidden) cancel();
    else if (screen.pen.active) screen.setDrawing(false);
    else if (thing.marking && screen.video) thing.fold();
    return;
  }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !screen.video) return;
  const isPressable = target.closest("button, a, summary, label");
  const step = event.shiftKey ? 0.2 : 1;
  if (thing.marking) {
    // The video is not shown, so its keys do nothing.
    if (event.key === "Enter" && !isPressable) ask();
    else if (event.key === "b" || event.key === "B") thing.pen.begin();
    else return;
  } else if (event.key === " " && !isPressable) screen.toggle();
  else if (event.key === "ArrowLeft") screen.seek(screen.time - step);
  else if (event.key === "ArrowRight") screen.seek(screen.time + step);
  else if (event.key === "Enter" && !isPressable) ask();
  else if (event.key === "b" || event.key === "B") {
    screen.setDrawing(true);
    screen.pen.begin();
  } else return;
  event.preventDefault();
});

function take(files) {
  for (const file of files) {
    if (file.type.startsWith("image/")) thing.takePicture(file);
    else library.upload(file);
  }
}

document.addEventListener("paste", (event) => {
  if (event.clipboardData?.files.length) take(event.clipboardData.files);
});
const drop = find("#drop");
let inside = 0;
document.addEventListener("dragenter", (event) => {
  if (!event.dataTransfer?.types.includes("Files")) return;
  inside += 1;
  drop.hidden = false;
});
document.addEventListener("dragleave", () => {
  inside = Math.max(0, inside - 1);
  drop.hidden = inside === 0;
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  inside = 0;
  drop.hidden = true;
  if (event.dataTransfer) take(event.dataTransfer.files);
});

find("#find").addEventListener("click", ask);
const LOST = "The server does not answer; trying again.";
follow(
  jobChanged,
  () => {
    if (find("#problem").textContent === LOST) complain(null);
    library.refresh().catch(complain);
  },
  () => complain(new Error(LOST)),
);
