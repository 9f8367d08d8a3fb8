import assert from "node:assert/strict";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import axe from "axe-core";
import type { Browser, Page } from "playwright-core";
import { createConsole } from "../../infra/console/console.ts";
import { choosePart } from "../choices.ts";
import { type ConsoleGateway, openBrowser, serveWithConsole } from "../console.ts";
import { createTestFolder } from "../folders.ts";
import { needs } from "../parts.ts";
import { buildPodRequest } from "../requests.ts";

// Opens the console in Debian's Chromium. Scripts that run in the page are strings here, because this program is
// checked with the types of Node, which lack those of browsers.

/** A policy that quotes an object's name in a message, a warning and an audit annotation. */
const policies = [
  {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingAdmissionPolicy",
    metadata: { name: "quote" },
    spec: {
      matchConstraints: {
        resourceRules: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
      },
      validations: [{ expression: "false", messageExpression: "'unwanted: ' + object.metadata.name" }],
      auditAnnotations: [{ key: "note", valueExpression: "'noted: ' + object.metadata.name" }],
    },
  },
  {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingAdmissionPolicyBinding",
    metadata: { name: "quote" },
    spec: { policyName: "quote", validationActions: ["Warn", "Audit"] },
  },
];
const config = {
  rules: {
    "validating-admission-policy": { settings: { policies } },
    "always-pull-images": {},
    "default-toleration-seconds": {},
    "allowed-registries": { settings: { registries: ["ghcr.io"] } },
    "security-context-deny": { mode: "warn" },
    "default-requests-and-limits": { settings: { requests: { cpu: "100m" } } },
    // postern check doesn't ask this backend, so the rule's verdict is undecided.
    "image-policy-webhook": { settings: { backend: { url: "https://127.0.0.1:1/" } } },
  },
  groups: { defaults: ["default-requests-and-limits"] },
};

/** A text that would run a script if a page showed it as HTML. */
const markup = `<img src=x onerror="globalThis.isHarmed=1"><script>globalThis.isHarmed=1</script>`;
const buildPod = (name: string, image: string, containerFields: object = {}) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, namespace: "shop" },
  spec: { containers: [{ name: "a", image, ...containerFields }] },
});

interface AxeResult {
  id: string;
  nodes: { html: string; failureSummary: string }[];
}

const folder = await createTestFolder();

describe("the console's pages", await needs("chromium"), () => {
  let gateway: ConsoleGateway;
  let browser: Browser;
  before(async () => {
    gateway = await serveWithConsole(folder, config);
    browser = await openBrowser();
  });
  after(async () => {
    await browser?.close();
    await gateway?.stop();
  });

  /** Opens a page. At the end, the test fails if the page reported an error or sent a request to another host. */
  const openPage = async (hash = "", options: Parameters<Browser["newPage"]>[0] = {}) => {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, ...options });
    page.setDefaultTimeout(60_000);
    const faults: string[] = [];
    page.on("pageerror", (error) => faults.push(String(error)));
    page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
    page.on("request", (request) => {
      if (!request.url().startsWith(gateway.console) && !request.url().startsWith("data:")) faults.push(request.url());
    });
    // Counts the plots: each plot listens to the event dppxchange while it exists.
    await page.addInitScript(`
      globalThis.plotCount = 0;
      const { addEventListener, removeEventListener } = window;
      window.addEventListener = (name, ...rest) => {
        globalThis.plotCount += name === "dppxchange";
        addEventListener(name, ...rest);
      };
      window.removeEventListener = (name, ...rest) => {
        globalThis.plotCount -= name === "dppxchange";
        removeEventListener(name, ...rest);
      };`);
    await page.goto(`${gateway.console}${hash}`);
    await page.getByText("connected", { exact: true }).waitFor();
    /** Closes the page, and fails if it had faults. Errors about responses with `expectedStatus` are no faults. */
    const close = async ({ expectedStatus = 0 } = {}) => {
      assert.equal(await page.evaluate("globalThis.isHarmed"), undefined);
      await page.close();
      const unexpected = faults.filter((fault) => !fault.includes(`status of ${expectedStatus}`));
      assert.deepEqual(unexpected, []);
    };
    return { page, close };
  };

  const sendPods = async (count: number, image = "ghcr.io/app:1") => {
    for (let index = 0; index < count; index++)
      await gateway.send(
        "default-toleration-seconds/mutate",
        buildPodRequest({ namespace: "shop", object: buildPod(`web-${index}`, image) }),
      );
  };
  /**
   * Waits until an expression is true. Playwright's own function would evaluate code in a way that the page's policy
   * forbids.
   */
  const waitUntil = async (page: Page, expression: string) => {
    for (let turn = 0; !(await page.evaluate(expression)); turn++) {
      assert.ok(turn < 1200, `${expression} stayed false`);
      await wait(50);
    }
  };

  const rows = (page: Page) => page.locator(".reviews a");
  /** Returns the number of reviews that the page has. Only the rows on the screen are in the document. */
  const countReviews = async (page: Page) =>
    Number((await page.getByText(/^\d+ of \d+$/).textContent())?.split(" ")[2]);

  it("the console's pages show a new review at once, and open it by the keyboard", async (test) => {
    const { page, close } = await openPage();
    const sent = performance.now();
    await sendPods(1);
    await rows(page).first().waitFor();
    test.diagnostic(`shown after ${Math.round(performance.now() - sent)} ms`);
    await rows(page).first().focus();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "As a case" }).waitFor();
    const added = await page.locator("td.added").allTextContents();
    assert.ok(added.includes("+   tolerations:"), added.join("\n"));
    assert.equal(
      await page.locator("tr:has(td.added) td:last-child").first().textContent(),
      "default-toleration-seconds",
    );
    await page.goBack();
    await waitUntil(page, "document.activeElement.classList.contains('row')");
    await page.goForward();
    await page.reload();
    await page.getByRole("heading", { name: "CREATE Pod shop/web-0 changed" }).waitFor();
    await close();
  });

  it("the console's pages filter reviews, and can be paused and resumed", async () => {
    const { page, close } = await openPage();
    await gateway.send("allowed-registries/validate", buildPodRequest({ object: buildPod("bad", "docker.io/x") }));
    await page.getByLabel("Filter the reviews").fill("denied");
    await page.getByRole("link", { name: /allowed-registries validate jane CREATE Pod bad denied/ }).waitFor();
    await page.getByLabel("Filter the reviews").fill("no such words");
    await page.getByText("No review has all words of “no such words”. Delete words to see more.").waitFor();
    await rows(page).first().waitFor({ state: "detached" });
    await page.getByLabel("Filter the reviews").fill("container docker.io/library");
    await page.getByText('images must come from ghcr.io; container "a" has docker.io/library/x').waitFor();
    assert.match(String(await page.locator(".reviews .time").first().textContent()), /^\d\d:\d\d:\d\dZ$/);
    await page.getByLabel("Filter the reviews").fill("REGISTRIES jane");
    await rows(page).first().waitFor();
    await page.getByLabel("Filter the reviews").fill("");
    await page.getByRole("button", { name: "Pause" }).click();
    const countWhenPaused = await rows(page).count();
    await sendPods(3);
    await page.getByRole("button", { name: "Resume (3 new)" }).waitFor();
    assert.equal(await rows(page).count(), countWhenPaused);
    await rows(page).first().click();
    await page.getByRole("heading", { name: "As a case" }).waitFor();
    await page.goBack();
    await page.getByRole("button", { name: "Resume (3 new)" }).waitFor();
    assert.equal(await rows(page).count(), countWhenPaused);
    await page.getByRole("button", { name: "Resume" }).click();
    await waitUntil(page, `document.querySelectorAll(".reviews a").length === ${countWhenPaused + 3}`);
    await page.reload();
    await page.getByText("connected", { exact: true }).waitFor();
    await waitUntil(page, `document.querySelectorAll(".reviews a").length === ${countWhenPaused + 3}`);
    await close();
  });

  it("the console's pages say that a rule in mode warn only reported a violation", async () => {
    const { page, close } = await openPage();
    const pod = buildPod("warned", "ghcr.io/a:1", { securityContext: { runAsUser: 0 } });
    await gateway.send("security-context-deny/validate", buildPodRequest({ namespace: "shop", object: pod }));
    await page.getByRole("link", { name: /CREATE Pod shop\/warned would be denied/ }).click();
    await page
      .getByText("Mode warn: the rule neither refused nor changed the object; it only reported what it would do.")
      .waitFor();
    await page.getByText("In mode enforce, it refuses to CREATE Pod shop/warned.").waitFor();
    await page.getByText(/^pods "warned" is forbidden: SecurityContext.RunAsUser is forbidden$/).waitFor();
    assert.equal(await page.locator(".failure, .denied").count(), 0);
    await close();
  });

  it("the console's pages fit a phone: a review is one column, and nothing is cut or scrolls sideways", async () => {
    const { page, close } = await openPage("", { viewport: { width: 390, height: 844 } });
    const long = "a/long/name/".repeat(20);
    const managedFields = [{ manager: "kubectl", fieldsV1: { "f:spec": {} } }];
    const send = (path: string, name: string, image: string, containerFields: object = {}) => {
      const pod = buildPod(name, image, { command: [long], ...containerFields });
      const object = { ...pod, metadata: { ...pod.metadata, labels: { "example.com/note": long }, managedFields } };
      return gateway.send(path, buildPodRequest({ namespace: "shop", object, userInfo: { username: long } }));
    };
    await send("default-toleration-seconds/mutate", "patient", "ghcr.io/a:1");
    await send("defaults/mutate", "in-group", `ghcr.io/${long}a:1`);
    await send("allowed-registries/validate", "foreign", `docker.io/${long}a`);
    await send("security-context-deny/validate", "rooted", "ghcr.io/a:1", { securityContext: { runAsUser: 0 } });
    for (const name of ["patient", "in-group", "foreign", "rooted"]) {
      await page.goto(`${gateway.console}#live`);
      await rows(page).filter({ hasText: name }).click();
      await page.getByRole("heading", { name: "As a case" }).waitFor();
      const faults = await page.evaluate(`[...document.querySelectorAll("main *")].flatMap((element) => {
        const { left, right, top, width } = element.getBoundingClientRect();
        const before = element.matches("td") && element.previousElementSibling?.getBoundingClientRect();
        return [
          width > 0 && (left < 0 || right > innerWidth) && "is cut",
          element.scrollWidth > element.clientWidth && getComputedStyle(element).display !== "inline" && "is scrolled",
          width > 0 && before && before.width > 0 && before.top === top && "is beside another",
        ].flatMap((fault) => fault ? [element.outerHTML.slice(0, 200) + " " + fault] : []);
      })`);
      assert.deepEqual(faults, [], name);
      assert.doesNotMatch(await page.locator("main").innerText(), /managedFields/);
    }
    const time = await page.locator("main p.quiet").first().textContent();
    assert.match(String(time), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, /);
    await close();
  });

  it("the console's pages show at once the parts of a large object near its changes, and no other parts", async () => {
    const { page, close } = await openPage();
    const args = Array.from({ length: 20_000 }, (_, index) => `a${index}`);
    const pod = buildPod("large", "ghcr.io/a:1", { args });
    await gateway.send("default-toleration-seconds/mutate", buildPodRequest({ namespace: "shop", object: pod }));
    await page.getByRole("link", { name: /CREATE Pod shop\/large changed/ }).click();
    await page.getByRole("columnheader", { name: "Before, near the changes" }).waitFor();
    await page.getByText("+   tolerations:").waitFor();
    assert.ok((await page.locator("tr").count()) < 50);
    await close();
  });

  it("the console's pages never show a text of a review as HTML", async () => {
    const { page, close } = await openPage();
    const object = {
      ...buildPod(markup, `ghcr.io/${markup}`, { command: [markup], env: [{ name: markup, value: markup }] }),
      [markup]: markup,
      metadata: { name: markup, labels: { [markup]: markup }, annotations: { [markup]: markup }, [markup]: markup },
    };
    const hostile = buildPodRequest({
      namespace: markup,
      name: markup,
      object,
      userInfo: { username: markup, groups: [markup] },
    });
    const paths = ["always-pull-images/mutate", "allowed-registries/validate", "security-context-deny/validate"];
    for (const path of paths) await gateway.send(path, hostile);
    const hostileRequest = {
      ...hostile,
      object: buildPod("x", markup),
      kind: { group: markup, version: markup, kind: markup },
    };
    await gateway.send("allowed-registries/validate", { ...hostileRequest, uid: markup });
    await gateway.send("validating-admission-policy/validate/quote", hostile);
    const isLastShown = 'document.querySelector(".reviews a").textContent.includes("validating-admission-policy")';
    await waitUntil(page, isLastShown);
    const hashes = await rows(page).evaluateAll((links: { hash?: string }[]) =>
      links.slice(0, 5).map(({ hash }) => hash),
    );
    let shownTexts = "";
    for (const hash of hashes) {
      await page.goto(`${gateway.console}${hash}`);
      await page.getByRole("heading", { name: "As a case" }).waitFor();
      assert.equal(await page.locator("img, main script").count(), 0);
      shownTexts += await page.locator("main").innerText();
    }
    for (const text of ["Warning: ", `unwanted: ${markup}`, `noted: ${markup}`, "(no valid image reference)"])
      assert.ok(shownTexts.includes(text), `${text} in ${shownTexts}`);
    await page.goto(`${gateway.console}#rules/${encodeURIComponent(markup)}`);
    await page.getByRole("alert").waitFor();
    for (const hash of [markup, "%", "rules/%E0%A4%A"]) {
      await page.goto(`${gateway.console}#${hash}`);
      await page.locator("main h1").waitFor();
    }
    await page.goto(`${gateway.console}#try`);
    // The character U+202E would reverse the direction of the text after it.
    const reversing = { ...object, metadata: { ...object.metadata, name: `${markup}\u202ereversed` } };
    await page.getByLabel("Manifests").fill(JSON.stringify(reversing));
    await page.getByLabel("User").fill(markup);
    await page.getByRole("button", { name: "Check" }).click();
    await waitUntil(page, 'document.querySelector("[aria-live]").textContent.includes("<img")');
    assert.equal(await page.locator("img, main script").count(), 0);
    const answered = await page.locator("[aria-live]").innerText();
    assert.match(answered, /\ufffdreversed/);
    assert.doesNotMatch(answered, /\p{Bidi_Control}/u);
    await close({ expectedStatus: 422 });
  });

  it("the console's pages have a policy that keeps even their own scripts from making HTML of a text", async () => {
    const { page } = await openPage();
    for (const script of [
      `document.body.innerHTML = "<b>a</b>"`,
      `document.body.append(new Range().createContextualFragment("<b>a</b>"))`,
      `trustedTypes.createPolicy("a", { createHTML: String })`,
    ])
      await assert.rejects(page.evaluate(script), /TrustedHTML|Policy "a" disallowed/, script);
    const otherHost = await page.evaluate(`fetch("https://example.com").then(() => "sent", () => "refused")`);
    assert.equal(otherHost, "refused");
    await page.close();
  });

  it("the console's pages copy a review as a case", async () => {
    const { page, close } = await openPage("", { permissions: ["clipboard-read", "clipboard-write"] });
    const request = buildPodRequest({ namespace: "shop", object: buildPod("copied", "a") });
    await gateway.send("default-toleration-seconds/mutate", request);
    await page.getByRole("link", { name: /CREATE Pod shop\/copied changed/ }).click();
    await page.getByRole("button", { name: "Copy as a case" }).click();
    await page.getByText("Copied: paste it").waitFor();
    const text = await page.evaluate("navigator.clipboard.readText()");
    assert.match(String(text), /^- name: "changes Pod shop\/copied on CREATE"\n {2}mutate:\n/);
    await close();
  });

  it("the console's pages check pasted or dropped manifests, and select the line of a refusal", async () => {
    const { page, close } = await openPage("#try");
    const text =
      "apiVersion: v1\nkind: Pod\nmetadata: { name: a }\nspec:\n  containers:\n    - name: a\n      image: quay.io/a:1\n";
    // First a file is dropped, which the page reads, and then no file, which the page leaves to the browser.
    const dropTwice = `{
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([${JSON.stringify(text)}], "pod.yaml"));
      const drop = (dataTransfer) => new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
      document.querySelector("textarea").dispatchEvent(drop(dataTransfer));
      document.querySelector("textarea").dispatchEvent(drop(new DataTransfer()));
    }`;
    assert.equal(await page.evaluate(dropTwice), true, "the browser's own action for the second drop is not prevented");
    await waitUntil(page, 'document.querySelector("textarea").value.includes("quay.io")');
    await page.getByRole("button", { name: "Check" }).click();
    await page.getByRole("heading", { name: "Pod default/a denied" }).waitFor();
    await page.getByText("allowed-registries: images must come").getByRole("button", { name: "line 7" }).click();
    const selected = await page.evaluate("getSelection().toString()");
    assert.equal(selected, "      image: quay.io/a:1");
    const steps = await page.locator("ol li").allTextContents();
    for (const step of [
      /^mutate always-pull-images changed/,
      /^validate image-policy-webhook undecided it asks/,
      /^validate allowed-registries denied/,
    ])
      assert.ok(
        steps.some((text) => step.test(text)),
        `${step} in ${steps.join("\n")}`,
      );
    const badgeStyles = (await page.evaluate(`["denied", "undecided"].map((verdict) => {
      const { color, borderStyle } = getComputedStyle(document.querySelector("li .badge." + verdict));
      return { color, borderStyle };
    })`)) as { color: string; borderStyle: string }[];
    assert.equal(await page.locator("li .badge.undecided").count(), 1);
    assert.notEqual(badgeStyles[0]?.color, badgeStyles[1]?.color);
    // The borders differ, too, for users who don't see the colours.
    assert.deepEqual([badgeStyles[0]?.borderStyle, badgeStyles[1]?.borderStyle], ["none", "dashed"]);
    await close();
  });

  it("the console's pages list the rules, search them, and draw plots of their reviews", async () => {
    const { page, close } = await openPage("#rules");
    await sendPods(5);
    await page.getByLabel("Search the rules").fill("toleration seconds");
    await page.getByRole("link", { name: "always-deny" }).waitFor({ state: "detached" });
    await page.getByLabel("Search the rules").fill("no such rule");
    await page.getByText("No rule has all words of “no such rule”. Delete words to see more.").waitFor();
    await page.getByLabel("Search the rules").fill("toleration seconds");
    await page.getByRole("link", { name: "default-toleration-seconds" }).click();
    await page.getByRole("img", { name: /^Calls and denials in/ }).waitFor();
    for (const name of ["Settings, entries and exemptions", "Parity with the compiled-in plugin", "README"])
      await page.getByRole("heading", { name }).waitFor();
    // The pixels of an empty canvas have only one value.
    const pixelValues = await page.evaluate(`{
      const { width, height } = document.querySelector("canvas");
      new Set(document.querySelector("canvas").getContext("2d").getImageData(0, 0, width, height).data).size;
    }`);
    assert.ok(Number(pixelValues) > 5, String(pixelValues));
    const countPlots = () => page.evaluate("globalThis.plotCount");
    const plotsBefore = await countPlots();
    await sendPods(1);
    const firstCell = page.locator("table").first().locator("td").first();
    const callsBefore = Number(await firstCell.textContent());
    await sendPods(1);
    await waitUntil(page, `Number(document.querySelector("td").textContent) > ${callsBefore}`);
    assert.equal(await countPlots(), plotsBefore, "plots that are replaced no longer listen");
    await page.reload();
    await page.getByRole("heading", { name: "default-toleration-seconds" }).waitFor();
    await page.goBack();
    await page.getByRole("heading", { name: "Rules" }).waitFor();
    await page.getByRole("link", { name: "default-toleration-seconds" }).focus();
    const callsInRow = "document.activeElement.closest('tr').cells[3].textContent";
    const shownCalls = await page.evaluate(callsInRow);
    await sendPods(1);
    await waitUntil(page, `${callsInRow} > ${shownCalls}`);
    await close();
  });

  it("the console's page searches the rules for words that were typed while the list was loading", async () => {
    const { page, close } = await openPage();
    const { promise: typed, resolve: continueLoading } = Promise.withResolvers<void>();
    await page.route("**/rules", async (route) => {
      await typed;
      await route.continue();
    });
    await page.getByRole("link", { name: "Rules" }).click();
    await page.getByLabel("Search the rules").fill("toleration seconds");
    continueLoading();
    await page.getByRole("link", { name: "default-toleration-seconds" }).waitFor();
    assert.equal(await page.getByRole("link", { name: "always-deny" }).count(), 0);
    await close();
  });

  const looks = [
    ["dark", 1280],
    ["light", 1280],
    ["light", 360],
    ["dark", 3840],
  ] as const;
  const isChosen = choosePart("looks", 2);
  for (const [colorScheme, width] of looks.filter((_, index) => isChosen(index)))
    it(`axe-core finds no fault in the console's pages, ${colorScheme} and ${width} pixels wide`, async (test) => {
      const { page, close } = await openPage("", { colorScheme, viewport: { width, height: 720 }, bypassCSP: true });
      await sendPods(2);
      await gateway.send("defaults/mutate", buildPodRequest({ object: buildPod("grouped", "ghcr.io/a:1") }));
      await gateway.send(
        "allowed-registries/validate",
        buildPodRequest({ object: buildPod("refused", "docker.io/a") }),
      );
      const root = buildPod("warned", "ghcr.io/a:1", { securityContext: { runAsUser: 0 } });
      await gateway.send("security-context-deny/validate", buildPodRequest({ object: root }));
      await assert.rejects(gateway.send("always-pull-images/mutate", { ...buildPodRequest(), operation: "OTHER" }));
      await rows(page).filter({ hasText: "failed: 400" }).first().waitFor();
      const gap = `(([first, second]) => second.getBoundingClientRect().top - first.getBoundingClientRect().bottom)(
        document.querySelectorAll(".reviews a"))`;
      assert.ok(Math.abs(Number(await page.evaluate(gap))) < 1, "rows lie under each other");
      const heading = (name: string) => page.getByRole("heading", { name });
      const reviews = [];
      for (const text of ["web-1", "grouped", "refused", "warned"]) {
        const hash = await rows(page).filter({ hasText: text }).first().getAttribute("href");
        reviews.push([String(hash), heading("As a case")] as const);
      }
      const failed = await rows(page).filter({ hasText: "failed: 400" }).first().getAttribute("href");
      const pages = [
        ["#live", page.getByRole("button", { name: "Resume" })],
        ...reviews,
        [String(failed), page.locator("main p.failure")],
        ["#live/none", page.getByRole("alert")],
        ["#try", heading("Changes")],
        ["#rules", page.getByRole("link", { name: "always-deny" })],
        ["#rules/always-pull-images", heading("README")],
      ] as const;
      const faults: string[] = [];
      const checks = { passes: 0, incomplete: 0, violations: 0 };
      const uncertain = new Set<string>();
      await page.getByRole("button", { name: "Pause" }).click();
      for (const [hash, last] of pages) {
        await page.goto(`${gateway.console}${hash}`);
        if (hash === "#try") await page.getByRole("button", { name: "Check" }).click();
        await last.first().waitFor();
        await page.evaluate(axe.source);
        const result = (await page.evaluate("axe.run(document)")) as Record<keyof typeof checks, AxeResult[]>;
        assert.ok(result.passes.length > 5);
        for (const name of ["passes", "incomplete", "violations"] as const) checks[name] += result[name].length;
        for (const { id } of result.incomplete) uncertain.add(id);
        for (const { id, nodes } of result.violations)
          faults.push(`${hash} ${id}: ${nodes[0]?.html} ${nodes[0]?.failureSummary}`);
        const excess = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
        if (Number(excess) > 0) faults.push(`${hash} is ${excess} pixels too wide`);
      }
      const { passes, incomplete, violations } = checks;
      test.diagnostic(`axe-core on ${pages.length} pages: ${passes} checks passed, ${violations} failed`);
      test.diagnostic(`${incomplete} checks gave no result: ${[...uncertain].join(", ")}`);
      assert.deepEqual(faults, []);
      await close({ expectedStatus: 422 });
    });

  it("the console's pages connect again after the gateway restarted, and keep the earlier reviews", async () => {
    const { page } = await openPage("", { bypassCSP: true });
    // Rows appear in their order, so all earlier rows exist when this one does.
    const object = buildPod("last-before", "ghcr.io/app:1");
    await gateway.send("default-toleration-seconds/mutate", buildPodRequest({ namespace: "shop", object }));
    await rows(page).filter({ hasText: "last-before" }).waitFor();
    const countBefore = await countReviews(page);
    const ports = ["--port", new URL(gateway.url).port, "--console-port", new URL(gateway.console).port];
    await gateway.stop();
    await page
      .getByRole("alert")
      .getByText(/^The gateway has not answered since \d\d:\d\d:\d\dZ\. If postern serve has ended, start it again: /)
      .waitFor();
    await page.getByLabel("Filter the reviews").fill("no such words");
    await page.evaluate(axe.source);
    const { violations } = (await page.evaluate("axe.run(document)")) as { violations: AxeResult[] };
    assert.deepEqual(violations, []);
    await page.getByLabel("Filter the reviews").fill("");
    const address = gateway.console;
    gateway = await serveWithConsole(folder, config, ports);
    assert.equal(gateway.console, address);
    await page.getByText("connected", { exact: true }).waitFor();
    assert.equal(await page.getByRole("alert").count(), 0);
    await sendPods(2);
    await page.getByText(`${countBefore + 2} of ${countBefore + 2}`).waitFor();
    await gateway.stop();
    await rm(join(folder, ".postern/console.token"));
    gateway = await serveWithConsole(folder, config, ports);
    assert.notEqual(gateway.console, address);
    await page
      .getByRole("alert")
      .getByText(/^The server at this address refuses this page: .*\. Open the address that postern serve prints\.$/)
      .waitFor();
    assert.equal(await countReviews(page), countBefore + 2);
    await page.close();
  });

  it("the console's pages tell screen readers the shown page, and move the focus to it", async () => {
    const { page, close } = await openPage();
    for (const name of ["Try it", "Rules", "Live"]) {
      await page.getByRole("navigation").getByRole("link", { name }).click();
      await page.getByRole("heading", { name, level: 1 }).waitFor();
      assert.deepEqual(await page.locator("[aria-current=page]").allTextContents(), [name]);
      assert.equal(await page.evaluate("document.activeElement.localName"), "main");
    }
    await close();
  });

  it("the console's pages keep the focus on a row, and the row on the screen, when new reviews arrive", async () => {
    const { page, close } = await openPage();
    await sendPods(1);
    await rows(page).first().waitFor();
    const isOnRow = () => page.evaluate("document.activeElement.classList.contains('row')");
    for (let key = 0; key < 50 && !(await isOnRow()); key++) await page.keyboard.press("Tab");
    assert.ok(await isOnRow());
    const focused = await page.evaluate("document.activeElement.hash");
    await sendPods(60);
    await waitUntil(page, "document.querySelector('.reviews li').ariaSetSize > 60");
    assert.equal(await page.evaluate("document.activeElement.hash"), focused);
    const top = Number(await page.evaluate("document.activeElement.getBoundingClientRect().top"));
    assert.ok(top > 0 && top < 800, String(top));
    await close();
  });

  it("the console's pages have few elements for 10,000 reviews, also after scrolling and filtering", async (test) => {
    const unusedOptions = { file: "", port: 0, getLoaded: () => assert.fail("nothing is opened") };
    const host = { publicKeys: "", writeLogLine: () => {} };
    const freePort = 0;
    const { host: watchedHost, open } = createConsole(freePort)(host);
    const listener = await open({ ...unusedOptions, state: folder });
    after(() => listener.close());
    const page = await browser.newPage();
    await page.goto(listener.line.replace("Console: ", ""));
    await page.getByText("connected", { exact: true }).waitFor();
    for (let index = 0; index < 10_500; index++) {
      const request = buildPodRequest({ name: `web-${index}`, namespace: "shop" });
      const facts = { rule: "limit-ranger", phase: "mutate", cluster: "local", code: 200, mode: "enforce" } as const;
      const outcome = { refused: false, operations: 1, milliseconds: 1 };
      watchedHost.writeLogLine({ ...facts, request, ...outcome, function: "", version: "" });
    }
    await page.getByText("10000 of 10000").waitFor();
    const measured = await page.evaluate(`(async () => {
      const scroller = document.querySelector(".scroller");
      const filter = document.querySelector("input");
      const times = { scroll: [], filter: [] };
      let elements = 0;
      const measure = async (name, act) => {
        await new Promise(requestAnimationFrame);
        const start = performance.now();
        act();
        scroller.getBoundingClientRect();
        times[name].push(performance.now() - start);
        elements = Math.max(elements, document.querySelectorAll("*").length);
      };
      const search = (words) => {
        filter.value = words;
        filter.dispatchEvent(new Event("input"));
      };
      for (let turn = 0; turn < 40; turn++)
        await measure("scroll", () => {
          scroller.scrollTop = (turn / 40) * scroller.scrollHeight;
          scroller.dispatchEvent(new Event("scroll"));
        });
      for (let turn = 0; turn < 10; turn++) await measure("filter", () => search(turn % 2 ? "" : "web-1"));
      const findMedian = (list) => list.sort((left, right) => left - right)[list.length / 2];
      return { elements, scroll: findMedian(times.scroll), filter: findMedian(times.filter) };
    })()`);
    const { elements, scroll, filter } = measured as { elements: number; scroll: number; filter: number };
    test.diagnostic(`medians: ${scroll} ms to scroll, ${filter} ms to filter; at most ${elements} elements`);
    assert.ok(elements < 1500, String(elements));
    await page.evaluate('document.querySelector(".scroller").scrollTop = 1e9');
    // The last row has the oldest of the 10,000 newest reviews.
    await page.locator('[aria-posinset="10000"]').waitFor();
    assert.match(String(await page.locator('[aria-posinset="10000"]').textContent()), /web-500 /);
    await page.close();
  });
});
