import "./style.css";
import { create } from "./elements.ts";
import { focusReview, livePage, showMatchingReviews } from "./live.ts";
import { createReviewPage } from "./review.ts";
import { createRulePage, createRulesPage } from "./rule-list.ts";
import { connect, setPageUpdate } from "./store.ts";
import { tryPage } from "./try.ts";

const pages: Record<string, string> = { live: "Live", try: "Try it", rules: "Rules" };
const connectionState = create("span.quiet", { role: "status" }, "connecting");
const connectionAlert = create("p.lost", { role: "alert" });
const links = Object.entries(pages).map(([name, title]) => create("a", { href: `#${name}` }, title));
const main = create("main", { tabindex: -1 });
const nav = create("nav", { "aria-label": "Pages" }, ...links);
document.body.append(create("header", create("strong", "Postern"), nav, connectionState), connectionAlert, main);

const createPage = (name: string, rest: string): Node => {
  if (name === "rules") return rest === "" ? createRulesPage() : createRulePage(rest);
  if (name === "try") return tryPage;
  return rest === "" ? livePage : createReviewPage(rest);
};

/** The id of the review whose page is open. When the user goes back to the list, its row gets the focus. */
let openedReview = "";
/** Shows the page that the address names after `#`, such as `#live`, `#live/ID` or `#rules/NAME`. */
const showPage = () => {
  // decodeURIComponent throws for an invalid text such as "%"; URLSearchParams doesn't.
  const decode = (text: string) => new URLSearchParams(`_=${text}`).get("_") ?? "";
  const [name = "", rest = ""] = location.hash.slice(1).split("/").map(decode);
  const page = Object.hasOwn(pages, name) ? name : "live";
  // Ends the updates of the page that was open before. The new page may set its own update.
  setPageUpdate(() => {});
  main.replaceChildren(createPage(page, rest));
  document.title = [rest, pages[page], "Postern"].filter(Boolean).join(" – ");
  for (const link of links) link.ariaCurrent = link.hash === `#${page}` ? "page" : null;
  if (main.contains(livePage)) {
    // While another page was open, the browser could not measure the rows of the list.
    showMatchingReviews();
    if (openedReview !== "") focusReview(openedReview);
  }
  openedReview = page === "live" ? rest : "";
};

// The link that the user followed is removed with its page. Without this, the page would have no focus.
addEventListener("hashchange", () => main.focus({ preventScroll: true }));
addEventListener("hashchange", showPage);
showPage();
connect((state, sentence = "") => {
  connectionState.textContent = state;
  // The browser tries to connect twice a second. Screen readers read each change, so an equal text isn't set again.
  if (connectionAlert.textContent !== sentence) connectionAlert.textContent = sentence;
});
