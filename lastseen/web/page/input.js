// Keys, paste and drop on the whole page.

// `keys`: what a key does, by its name; a key that it has no use for it leaves by returning false.
export function listen({ keys, files }) {
  document.addEventListener("keydown", (event) => {
    const target = event.target;
    const isTyping = target.closest("input:not([type=range]), textarea, select");
    if (event.key !== "Escape" && (isTyping || event.ctrlKey || event.metaKey || event.altKey)) return;
    const isPressable = Boolean(target.closest("button, a, summary, label"));
    if ((event.key === " " || event.key === "Enter") && isPressable) return;
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act && act(event) !== false && event.key !== "Escape") event.preventDefault();
  });
  document.addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) files([...event.clipboardData.files]);
  });
  const drop = document.querySelector("#drop");
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
    if (event.dataTransfer) files([...event.dataTransfer.files]);
  });
}
