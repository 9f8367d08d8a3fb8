import "./style.css";
import { create } from "./elements.ts";
import { focusReview, livePage, showAll } from "./live.ts";
import { createReviewPage } from "./review.ts";
import { createRulePage, createRulesPage } from "./rule-list.ts";
import { connect, setPageUpdate } from "./store.ts";
import { tryPage } from "./try.ts";

const pages: Record<string, string> = { live: "Live", try: "Try it", rules: "Rules" };
const state = create("span.quiet", { role: "status" }, "connecting");
const lost = create("p.lost", { role: "alert" });
const links = Object.entries(pages).map(([name, title]) => create("a", { href: `#${name}` }, title));
const main = create("main", { tabindex: -1 });
const nav = create("nav", { "aria-label": "Pages" }, ...links);
document.body.append(create("header", create("strong", "Postern"), nav, state), lost, main);

const createPage = (name: string, rest: string): Node => {
  if (name === "rules") return rest === "" ? createRulesPage() : createRulePage(rest);
  if (name === "try") return tryPage;
  return rest === "" ? livePage : createReviewPage(rest);
};

/** The review that was opened; the focus returns to its row. */
let opened = "";
const showPage = () => {
  // Unlike decodeURIComponent, URLSearchParams reads any text.
  const decode = (text: string) => new URLSearchParams(`_=${text}`).get("_") ?? "";
  const [name = "", rest = ""] = location.hash.slice(1).split("/").map(decode);
  const page = Object.hasOwn(pages, name) ? name : "live";
  setPageUpdate(() => {});
  main.replaceChildren(createPage(page, rest));
  document.title = [rest, pages[page], "Postern"].filter(Boolean).join(" – ");
  for (const link of links) link.ariaCurrent = link.hash === `#${page}` ? "page" : null;
  if (main.contains(livePage)) {
    showAll();
    if (opened !== "") focusReview(opened);
  }
  opened = page === "live" ? rest : "";
};

// Without this, the focus would be lost with the link that was followed.
addEventListener("hashchange", () => main.focus({ preventScroll: true }));
addEventListener("hashchange", showPage);
showPage();
connect((word, sentence = "") => {
  state.textContent = word;
  // The browser tries again twice a second, and each change is read out.
  if (lost.textContent !== sentence) lost.textContent = sentence;
});
