const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => { root.dataset.theme = dark.matches ? "dark" : "light"; };
follow();
dark.addEventListener("change", follow);
document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
});
let before = "light"; // paper is white
addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; });
addEventListener("afterprint", () => { root.dataset.theme = before; });

// Charts take their colours from the style sheet, so that a change of theme draws nothing again.
const config = { legend: { columns: innerWidth < 640 ? 2 : 5 } };
for (const holder of document.querySelectorAll(".plot")) {
  const spec = JSON.parse(holder.querySelector("script").textContent);
  await vegaEmbed(holder, spec, { actions: false, renderer: "svg", config });
}
const folded = [...document.querySelectorAll("section > details")];
const unfold = (open) => folded.forEach((one) => { one.open = open; });
unfold(false);
addEventListener("beforeprint", () => unfold(true));
addEventListener("afterprint", () => unfold(false));
// A chart takes its width from the window; in a closed section it has none.
folded.forEach((one) => one.addEventListener("toggle", () => dispatchEvent(new Event("resize"))));
const openTarget = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const own = target.querySelector(":scope > details") || target.closest("details");
  if (own) own.open = true;
  target.scrollIntoView({ block: target.matches("tr") ? "center" : "start" });
  if (target.dataset.at) light(target);
};
// A line of code lights the lines of the other panes that belong to the same source line.
const light = (row) => {
  document.querySelectorAll("tr.lit").forEach((one) => one.classList.remove("lit"));
  const same = [...document.querySelectorAll("tr[data-at]")].filter((one) => one.dataset.at === row.dataset.at);
  same.forEach((one) => one.classList.add("lit"));
  for (const pane of document.querySelectorAll(".pane")) {
    const first = same.find((one) => pane.contains(one));
    if (first && !pane.contains(row)) {
      const rows = pane.querySelector(".rows");
      rows.scrollTop = first.offsetTop - rows.clientHeight / 3;
    }
  }
};
const heat = (row) => Number(row.style.getPropertyValue("--heat"));
for (const panes of document.querySelectorAll(".panes")) {
  // Each pane begins where most of the time goes.
  for (const rows of panes.querySelectorAll(".rows")) {
    const hottest = [...rows.querySelectorAll("tr")].reduce((a, b) => (heat(b) > heat(a) ? b : a));
    if (heat(hottest)) rows.scrollTop = hottest.offsetTop - rows.clientHeight / 3;
  }
  const pick = (event) => {
    const row = event.target.closest("tr[data-at]");
    if (row && !event.target.closest("a")) light(row);
  };
  panes.addEventListener("click", pick);
  panes.addEventListener("keydown", (event) => { if (event.key === "Enter") pick(event); });
}
// What a mark of a drawing is, beside the pointer.
const tip = document.getElementById("tip");
document.addEventListener("pointerover", (event) => {
  const words = event.target.dataset?.tip;
  tip.hidden = !words;
  tip.textContent = words || "";
});
document.addEventListener("pointermove", (event) => {
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  tip.style.transform = `translate(${Math.max(left, 8)}px, ${event.clientY + 18}px)`;
});
addEventListener("hashchange", openTarget);
openTarget();
root.dataset.ready = "yes";
