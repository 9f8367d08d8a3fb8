import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import type { Browser, Page } from "playwright-core";
import { type ConsoleGateway, openBrowser, serveWithConsole } from "../console.ts";
import { createTestFolder } from "../folders.ts";
import { needs } from "../parts.ts";
import { buildPodRequest } from "../requests.ts";

// Opens the console in Debian's Chromium. The scripts that run in the page are texts, because this program's types are
// those of Node.

const config = {
  rules: {
    "always-pull-images": {},
    "default-toleration-seconds": {},
    "allowed-registries": { settings: { registries: ["ghcr.io"] } },
    "security-context-deny": { mode: "warn" },
  },
};
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Would run a script, if any of the places that show it took it for HTML. */
const markup = `<img src=x onerror="globalThis.isHarmed=1"><script>globalThis.isHarmed=1</script>`;
const buildPod = (name: string, image: string, more: object = {}) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, namespace: "shop" },
  spec: { containers: [{ name: "a", image, ...more }] },
});

describe("the console's pages", await needs("chromium"), () => {
  let folder: string;
  let gateway: ConsoleGateway;
  let browser: Browser;
  before(async () => {
    folder = await createTestFolder();
    gateway = await serveWithConsole(folder, config);
    browser = await openBrowser();
  });
  after(async () => {
    await browser?.close();
    await gateway?.stop();
  });

  /** Opens a page; fails the test at its end if the page reported an error or asked another host. */
  const openPage = async (hash = "", options: Parameters<Browser["newPage"]>[0] = {}) => {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, ...options });
    const faults: string[] = [];
    page.on("pageerror", (error) => faults.push(String(error)));
    page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
    page.on("request", (request) => {
      if (!request.url().startsWith(gateway.console) && !request.url().startsWith("data:")) faults.push(request.url());
    });
    await page.goto(`${gateway.console}${hash}`);
    await page.getByText("connected", { exact: true }).waitFor();
    /** Closes the page. The browser reports answers with the expected HTTP status, too. */
    const close = async (expected = "none") => {
      assert.equal(await page.evaluate("globalThis.isHarmed"), undefined);
      await page.close();
      assert.deepEqual(
        faults.filter((fault) => !fault.includes(`status of ${expected}`)),
        [],
      );
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
  const rows = (page: Page) => page.locator(".reviews a");

  it("show a review within a second, and open it by keys", async () => {
    const { page, close } = await openPage();
    const sent = performance.now();
    await sendPods(1);
    await rows(page).first().waitFor();
    assert.ok(performance.now() - sent < 1000);
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
    await page.waitForFunction("document.activeElement.classList.contains('row')");
    await close();
  });

  it("filter, pause and resume", async () => {
    const { page, close } = await openPage();
    await gateway.send("allowed-registries/validate", buildPodRequest({ object: buildPod("bad", "docker.io/x") }));
    await page.getByLabel("Verdict").selectOption("denied");
    await page.getByRole("link", { name: /allowed-registries validate jane CREATE Pod bad denied/ }).waitFor();
    await page.getByLabel("Filter the reviews").fill("no such words");
    await rows(page).first().waitFor({ state: "detached" });
    await page.getByLabel("Filter the reviews").fill("REGISTRIES jane");
    await rows(page).first().waitFor();
    await page.getByLabel("Filter the reviews").fill("");
    await page.getByLabel("Verdict").selectOption("");
    await page.getByRole("button", { name: "Pause" }).click();
    const paused = await rows(page).count();
    await sendPods(3);
    await page.getByRole("button", { name: "Resume (3 new)" }).waitFor();
    assert.equal(await rows(page).count(), paused);
    await page.getByRole("button", { name: "Resume" }).click();
    await page.waitForFunction(`document.querySelectorAll(".reviews a").length === ${paused + 3}`);
    await close();
  });

  it("never make HTML of a text of a review", async () => {
    const { page, close } = await openPage();
    const object = {
      ...buildPod(markup, `ghcr.io/${markup}`, { command: [markup], env: [{ name: markup, value: markup }] }),
      ...{ [markup]: markup },
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
    const wrong = { ...hostile, object: buildPod("x", markup), kind: { group: markup, version: markup, kind: markup } };
    await gateway.send("allowed-registries/validate", { ...wrong, uid: markup });
    await page.waitForFunction('document.body.textContent.includes("<img")');
    const targets = await rows(page).evaluateAll("(links) => links.slice(0, 4).map((link) => link.hash)");
    for (const target of targets as string[]) {
      await page.goto(`${gateway.console}${target}`);
      await page.getByRole("heading", { name: "As a case" }).waitFor();
      assert.equal(await page.locator("img, main script").count(), 0);
    }
    await page.goto(`${gateway.console}#rules/${encodeURIComponent(markup)}`);
    await page.getByRole("alert").waitFor();
    await page.goto(`${gateway.console}#${markup}`);
    await page.goto(`${gateway.console}#try`);
    await page.getByLabel("Manifests").fill(JSON.stringify(object));
    await page.getByLabel("User").fill(markup);
    await page.getByRole("button", { name: "Check" }).click();
    await page.waitForFunction('document.querySelector("[aria-live]").textContent.includes("<img")');
    assert.equal(await page.locator("img, main script").count(), 0);
    await close("422");
  });

  it("refuse what would make HTML of a text, even in a script of their own", async () => {
    const { page } = await openPage();
    for (const script of [
      `document.body.innerHTML = "<b>a</b>"`,
      `document.body.append(new Range().createContextualFragment("<b>a</b>"))`,
      `trustedTypes.createPolicy("a", { createHTML: String })`,
      `setTimeout("1")`,
    ])
      await assert.rejects(
        page.evaluate(script),
        /TrustedHTML|Trusted ?Types|TrustedScript|Content Security Policy/,
        script,
      );
    const outer = await page.evaluate(`fetch("https://example.com").then(() => "sent", () => "refused")`);
    assert.equal(outer, "refused");
    await page.close();
  });

  it("copy a review as a case", async () => {
    const { page, close } = await openPage("", { permissions: ["clipboard-read", "clipboard-write"] });
    await sendPods(1);
    await rows(page).first().click();
    await page.getByRole("button", { name: "Copy as a case" }).click();
    await page.getByText("Copied").waitFor();
    const text = await page.evaluate("navigator.clipboard.readText()");
    assert.match(String(text), /^- name: "changes Pod shop\/web-0 on CREATE"\n {2}mutate:\n/);
    await close();
  });

  it("check manifests that are pasted or dropped, and select the line of a refusal", async () => {
    const { page, close } = await openPage("#try");
    const text =
      "apiVersion: v1\nkind: Pod\nmetadata: { name: a }\nspec:\n  containers:\n    - name: a\n      image: quay.io/a:1\n";
    const drop = `(editor) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([${JSON.stringify(text)}], "pod.yaml"));
      editor.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
    }`;
    await page.getByLabel("Manifests").evaluate(drop);
    await page.waitForFunction('document.querySelector("textarea").value.includes("quay.io")');
    await page.getByRole("button", { name: "Check" }).click();
    await page.getByRole("heading", { name: "Pod default/a denied" }).waitFor();
    await page.getByText("allowed-registries: images must come").getByRole("button", { name: "line 7" }).click();
    const selected = await page.evaluate("getSelection().toString()");
    assert.equal(selected, "      image: quay.io/a:1");
    const steps = await page.locator("ol li").allTextContents();
    assert.ok(
      steps.some((step) => /^mutate always-pull-images changed/.test(step)),
      steps.join("\n"),
    );
    await close();
  });

  it("list the rules, search them, and draw plots of their reviews", async () => {
    const { page, close } = await openPage("#rules");
    await sendPods(5);
    await page.getByLabel("Search the rules").fill("toleration seconds");
    await page.getByRole("link", { name: "always-deny" }).waitFor({ state: "detached" });
    await page.getByRole("link", { name: "default-toleration-seconds" }).click();
    await page.getByRole("img", { name: /^Calls and denials in/ }).waitFor();
    for (const name of ["Settings, entries and exemptions", "Parity with the compiled-in plugin", "README"])
      await page.getByRole("heading", { name }).waitFor();
    const painted = `(canvas) => new Set(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data).size`;
    assert.ok(Number(await page.locator("canvas").first().evaluate(painted)) > 5);
    await page.reload();
    await page.getByRole("heading", { name: "default-toleration-seconds" }).waitFor();
    await page.goBack();
    await page.getByRole("heading", { name: "Rules" }).waitFor();
    await close();
  });

  const looks = [
    ["dark", 1280],
    ["light", 1280],
    ["light", 360],
    ["dark", 3840],
  ] as const;
  for (const [colorScheme, width] of looks)
    it(`have no fault that axe-core finds, ${colorScheme} and ${width} pixels wide`, async () => {
      const { page, close } = await openPage("", { colorScheme, viewport: { width, height: 720 }, bypassCSP: true });
      await sendPods(2);
      await rows(page).first().waitFor();
      const review = await rows(page).first().getAttribute("href");
      const found: string[] = [];
      for (const hash of ["#live", review, "#try", "#rules", "#rules/always-pull-images"]) {
        await page.goto(`${gateway.console}${hash}`);
        if (hash === "#try") await page.getByRole("button", { name: "Check" }).click();
        const last = { [String(review)]: "As a case", "#try": "Changes", "#rules/always-pull-images": "README" }[
          String(hash)
        ];
        if (last !== undefined) await page.getByRole("heading", { name: last }).first().waitFor();
        if (hash === "#rules") await page.getByRole("link", { name: "always-deny" }).waitFor();
        await page.evaluate(axe);
        const result = (await page.evaluate("axe.run(document)")) as {
          violations: { id: string; nodes: { html: string; failureSummary: string }[] }[];
          passes: unknown[];
        };
        assert.ok(result.passes.length > 5);
        for (const { id, nodes } of result.violations)
          found.push(`${hash} ${id}: ${nodes[0]?.html} ${nodes[0]?.failureSummary}`);
        const wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
        if (Number(wide) > 0) found.push(`${hash} is ${wide} pixels too wide`);
      }
      assert.deepEqual(found, []);
      await close();
    });

  it("connect again after the gateway restarted, and keep the reviews from before", async () => {
    const { page } = await openPage();
    await sendPods(1);
    await rows(page).first().waitFor();
    const before = await rows(page).count();
    const ports = ["--port", new URL(gateway.url).port, "--console-port", new URL(gateway.console).port];
    await gateway.stop();
    await page.getByText("connecting again").waitFor();
    const address = gateway.console;
    gateway = await serveWithConsole(folder, config, ...ports);
    assert.equal(gateway.console, address);
    await page.getByText("connected", { exact: true }).waitFor();
    await sendPods(2);
    await page.waitForFunction(`document.querySelectorAll(".reviews a").length === ${before + 2}`);
    await page.close();
  });

  it("scroll, filter and add to 10,000 reviews without delay", async () => {
    const { page, close } = await openPage();
    const pods = 10_000 / 8;
    await Promise.all(Array.from({ length: 8 }, () => sendPods(pods)));
    await page.getByText("10000 of 10000").waitFor({ timeout: 20_000 });
    assert.ok((await rows(page).count()) < 100);
    const measured = await page.evaluate(`(async () => {
      const scroller = document.querySelector(".scroller");
      const filter = document.querySelector("input");
      const frame = () => new Promise(requestAnimationFrame);
      const worst = { scroll: 0, filter: 0 };
      for (let turn = 0; turn < 40; turn++) {
        const [key, act] = turn % 4 ? ["scroll", () => { scroller.scrollTop = Math.random() * scroller.scrollHeight; }]
          : ["filter", () => { filter.value = turn % 8 ? "web-1" : ""; filter.dispatchEvent(new Event("input")); }];
        await frame();
        const start = performance.now();
        act();
        scroller.dispatchEvent(new Event("scroll"));
        scroller.getBoundingClientRect();
        worst[key] = Math.max(worst[key], performance.now() - start);
      }
      filter.value = "";
      filter.dispatchEvent(new Event("input"));
      return worst;
    })()`);
    const { scroll, filter } = measured as { scroll: number; filter: number };
    assert.ok(scroll < 50 && filter < 150, JSON.stringify(measured));
    await page.locator(".scroller").evaluate("(scroller) => { scroller.scrollTop = scroller.scrollHeight; }");
    await wait(200);
    const last = await rows(page).last().evaluate('(link) => link.parentElement.getAttribute("aria-posinset")');
    assert.equal(last, "10000");
    await close();
  });
});
