// The page: what is shown, asked and answered. The parts know nothing of each other; this joins them.

import { AnswerView } from "./answer.js";
import { follow, post } from "./api.js";
import { Curve } from "./curve.js";
import { History } from "./history.js";
import { listen } from "./input.js";
import { Library } from "./library.js";
import { clock, duration, make } from "./moments.js";
import { Preview } from "./preview.js";
import { Question } from "./question.js";
import { Screen } from "./screen.js";
import { Sightings } from "./sightings.js";
import { Thing } from "./thing.js";

const find = (selector) => document.querySelector(selector);
let told = 0; // when the server last told of the question's progress, on the clock of this page
let chosen = null; // { number, track, isGuess }: the video of the answer and the sighting in it that are shown

const curve = new Curve(find(".curve"), (time) => screen.seek(time));
const screen = new Screen(find("#stage"), {
  drawn: (box, time) => takeMoment(box, time),
  moved: (time) => {
    curve.move(time);
    sayBefore();
  },
});
const thing = new Thing(find("#thing"), find("#mark"), { changed: () => update() });
const library = new Library(find("#library"), {
  opened: (video) => {
    if (!video.file) return;
    leave();
    thing.fold();
    open(video);
  },
  // Neither a photo that is being marked nor a search leaves the screen for a video that has come.
  added: (video) => {
    if (!video.file || question.running) return;
    leave();
    open(video);
  },
  changed: libraryChanged,
});
const question = new Question({ changed: questionChanged, answered, failed: complain });
const view = new AnswerView(
  { answer: find("#answer"), filmstrip: find("#filmstrip") },
  {
    guess: () => {
      choose(0, question.answers.answers[0].answer.best_guess);
      find("#answer").focus();
    },
    seek: (time) => {
      screen.pause();
      screen.seek(time);
    },
  },
);
const sightings = new Sightings(find("#sightings"), { choose });
const past = new History(find("#history"), {
  address: (id) => addressOf(id),
  forgotten: (id) => {
    if (id === question.id && !question.running) leave();
  },
});
new Preview(find(".timeline"), { shown: () => screen.video, plot: () => find(".scale") });

function say(place, problem) {
  find(place).textContent = problem?.message ?? "";
}

function complain(problem) {
  say("#problem", problem);
}

async function takeMoment(box, time) {
  say("#video-problem", null);
  try {
    await thing.takeMoment(screen.video, time, box);
    screen.follow(screen.track, screen.pen.isGuess);
  } catch (problem) {
    say("#video-problem", problem);
  }
}

function open(video) {
  say("#video-problem", null);
  screen.load(video);
  library.current = video.id;
  library.draw();
  update();
}

function libraryChanged() {
  const { videos } = library;
  find("#welcome").hidden = videos.length > 0 || library.busy;
  document.body.classList.toggle("begun", find("#welcome").hidden);
  if (!library.find(screen.video?.id)) {
    const first = videos.findLast((video) => video.file);
    if (first) open(first);
    else screen.empty();
  }
  update();
  markPast(); // questions are forgotten with their videos
}

function update() {
  find("#scope").hidden = library.videos.length < 2;
  find("#before-row").hidden = !screen.video;
  find(".left").classList.toggle("marking", thing.marking); // the photo is shown instead of the video
  find("#fold").hidden = !screen.video;
  if (thing.marking) screen.pause();
  sayBefore();
  const isOld = question.answers !== null && !question.isOf(thing.asked);
  find(".left").classList.toggle("old", isOld);
  find("#outdated").hidden = !isOld;
  const button = find("#find");
  button.hidden = question.running;
  button.disabled = !thing.ready || !library.videos.length;
  find("#finding").hidden = !question.running;
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
  const asked = { looks: thing.asked, videos: everywhere || !screen.video ? [] : [screen.video.id] };
  if (find("#before").checked && screen.video) asked.before = Math.max(0.2, screen.time);
  try {
    screen.pause();
    await question.ask(asked);
    history.pushState(null, "", addressOf(question.id));
    markPast();
    thing.fold();
    find("#cancel").focus();
  } catch (problem) {
    complain(problem);
  }
}

function questionChanged() {
  const { job } = question;
  update();
  told = performance.now();
  sayProgress();
  if (job.state === "cancelled") find("#find").focus();
  if (["cancelled", "failed"].includes(job.state)) {
    if (addressed() === job.id) history.replaceState(null, "", location.pathname); // there is nothing to come back to
    if (question.preliminary) clearAnswer();
  }
}

// The phase, how much of it is done, and the time left for all phases, which goes down between two events, too.
function sayProgress() {
  if (!question.running) return;
  const { job } = question;
  const bar = find("#finding progress");
  if (job.total) bar.value = job.done / job.total;
  else bar.removeAttribute("value");
  const count = job.total ? `: ${job.done} of ${job.total} ${job.unit}` : "";
  const left = job.left === null ? 0 : job.left - (performance.now() - told) / 1000;
  const time = left > 0.5 ? `, ${duration(left)} left`.replaceAll(" ", "\u00a0").replace("\u00a0", " ") : ""; // not torn apart
  const text = `${job.step || "Starting"}${count}${time}`;
  find("#finding-text").textContent = job.state === "waiting" ? "Waiting until the video is read" : text;
}
setInterval(sayProgress, 1000);

function markPast() {
  past.current = question.id;
  past.refresh().catch((problem) => past.say(problem));
}

function clearAnswer() {
  question.close();
  chosen = past.current = null;
  past.draw();
  view.clear();
  sightings.clear();
  curve.clear();
  screen.follow(null);
  update();
}

function answered(before) {
  const { answers } = question;
  const [number, track] = placeIn(answers, before);
  const stays = before !== null && looksElsewhere(answers.answers[number]?.video);
  sightings.show(answers);
  (stays ? show : choose)(number, track);
  if (question.preliminary || stays) return;
  find("#answer").focus({ preventScroll: true });
  if (!before) find("#answer").scrollIntoView({ block: "nearest", behavior: "smooth" });
}

// Whether the person has gone to another moment of the video than that of the sighting shown, and is not to be
// taken back.
function looksElsewhere(video) {
  return Boolean(chosen?.track) && screen.video?.id === video && !screen.isAt(chosen.track.end);
}

// The sighting to show: the latest, or the one that was chosen among the preliminary ones.
function placeIn(answers, before) {
  const latest = answers.answers[0]?.answer.tracks.at(-1) ?? null;
  const wasLatest = !chosen?.track || chosen.track === before?.answers[0]?.answer.tracks.at(-1);
  if (!before || wasLatest) return [0, latest];
  const video = before.answers[chosen.number].video;
  const number = answers.answers.findIndex((seen) => seen.video === video);
  const meets = (track) => track.start <= chosen.track.end && track.end >= chosen.track.start;
  const same = answers.answers[number]?.answer.tracks.find(meets);
  return same ? [number, same] : [0, latest];
}

// Go to a sighting of the n-th video of the answers; null: not seen, and no guess is shown.
function choose(number, track) {
  if (!show(number, track)) return;
  screen.pause();
  screen.seek(track.end);
}

// Whether there is a moment to go to.
function show(number, track) {
  const { answers } = question;
  const seen = answers.answers[number];
  const isGuess = !answers.found && track !== null;
  chosen = { number, track, isGuess };
  view.show({ job: question.id, answers, ...chosen });
  sightings.mark(track);
  update();
  // The video of a guess is shown only when it is asked for.
  if (!seen || (!track && seen.video !== screen.video?.id)) return false;
  const video = library.find(seen.video);
  if (!video?.file) {
    screen.follow(null); // what is on the screen is another video
    curve.clear();
    return false;
  }
  open(video);
  const tracks = isGuess ? [track] : seen.answer.tracks;
  curve.show(seen, tracks, { isGuess, time: screen.time, choose: (each) => choose(number, each) });
  curve.mark(track);
  screen.follow(track, isGuess);
  return track !== null;
}

// --- the address: each question has one of its own ---

const addressOf = (id) => `#/questions/${id}`;
const addressed = () => /^#\/questions\/([0-9a-z]+)$/.exec(location.hash)?.[1] ?? null;

// No question is shown any longer; the button "back" leads to it.
function leave() {
  clearAnswer();
  if (addressed()) history.pushState(null, "", location.pathname);
}

async function visit() {
  const id = addressed();
  if (id === question.id) return;
  clearAnswer();
  complain(null);
  if (id) thing.fold();
  try {
    if (id) await question.open(id, thing.asked);
    markPast();
  } catch (problem) {
    clearAnswer();
    past.say(problem);
  }
}
window.addEventListener("popstate", visit);

listen({
  keys: {
    Escape: () => {
      if (question.running) question.cancel();
      else if (screen.pen.active) screen.setDrawing(false);
      else if (thing.marking && screen.video) thing.fold();
    },
    Enter: () => {
      if (!screen.video) return false;
      if (!thing.accept()) ask();
      return true;
    },
    " ": () => onScreen(() => screen.toggle()),
    ArrowLeft: (event) => onScreen(() => screen.seek(screen.time - (event.shiftKey ? 0.2 : 1))),
    ArrowRight: (event) => onScreen(() => screen.seek(screen.time + (event.shiftKey ? 0.2 : 1))),
    z: () => onScreen(() => screen.zoom(!screen.zoomed)),
    b: () => {
      if (thing.marking) return thing.pen.begin();
      return onScreen(() => {
        screen.setDrawing(true);
        screen.pen.begin();
      });
    },
  },
  files: (files) => {
    const isPicture = (file) => file.type.startsWith("image/");
    const pictures = files.filter(isPicture);
    if (pictures.length) thing.takePictures(pictures);
    for (const file of files) if (!isPicture(file)) library.upload(file);
  },
});

// The keys of the video do nothing while it is not shown.
function onScreen(act) {
  if (!screen.video || thing.marking) return false;
  return act();
}

find("#find").addEventListener("click", ask);
find("#cancel").addEventListener("click", () => question.cancel());
let isFirst = true;
follow(
  async (job) => {
    if (job.kind === "index") await library.tell(job);
    question.tell(job);
    if (job.kind === "find" && ["done", "failed", "cancelled"].includes(job.state)) markPast();
  },
  async () => {
    find("#lost").hidden = true;
    await library.refresh();
    if (isFirst) visit();
    isFirst = false;
  },
  () => (find("#lost").hidden = false),
);
