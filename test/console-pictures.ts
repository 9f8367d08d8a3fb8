// Makes the pictures of docs/images: `npm run pictures`. Needs Debian's packages chromium and pngquant.
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { openBrowser, serveWithConsole } from "./console.ts";
import { buildPodRequest } from "./requests.ts";

const config = {
  rules: {
    "always-pull-images": {},
    "default-toleration-seconds": {},
    "allowed-registries": { settings: { registries: ["ghcr.io", "registry.k8s.io"] } },
    "security-context-deny": { mode: "warn" },
    "default-requests-and-limits": { settings: { requests: { cpu: "100m", memory: "128Mi" } } },
  },
};
const paths = [
  "always-pull-images/mutate",
  "default-toleration-seconds/mutate",
  "allowed-registries/validate",
  "security-context-deny/validate",
  "default-requests-and-limits/mutate",
];
const users = ["jane", "system:serviceaccount:ci:deployer", "system:serviceaccount:kube-system:replicaset-controller"];
const images = [
  "ghcr.io/shop/web:1.4",
  "docker.io/library/nginx:1.29",
  "registry.k8s.io/pause:3.10",
  "ghcr.io/shop/cart:7",
];
const names = ["web", "cart", "search", "mail", "invoice"];

/** For each picture: opens an address of the console, and waits for the part of the page that appears last. */
const pictures: Record<string, (page: Page, open: (hash: string) => Promise<unknown>) => Promise<unknown>> = {
  live: async (_, open) => open("#live"),
  review: async (page, open) => {
    await open("#live");
    await page
      .getByRole("link", { name: /always-pull-images/ })
      .first()
      .click();
    return page.getByRole("heading", { name: "As a case" }).waitFor();
  },
  try: async (page, open) => {
    await open("#try");
    await page.getByRole("button", { name: "Check" }).click();
    return page.getByRole("heading", { name: "Changes" }).first().waitFor();
  },
  rules: async (page, open) => {
    await open("#rules");
    return page.getByRole("link", { name: "always-deny" }).waitFor();
  },
  rule: async (page, open) => {
    await open("#rules/allowed-registries");
    return page.getByRole("heading", { name: "README" }).waitFor();
  },
};

/** The looks of the console, each with the width and height of the page. A phone has only some of the pictures. */
const looks = { dark: [1280, 800], light: [1280, 800], phone: [390, 844] } as const;
const picturesOfPhone = ["live", "review"];

const folder = await mkdtemp(join(tmpdir(), "postern-pictures-"));
const target = fileURLToPath(new URL("../docs/images/", import.meta.url));
await mkdir(target, { recursive: true });
const gateway = await serveWithConsole(folder, config);
const browser = await openBrowser();
try {
  for (const [look, [width, height]] of Object.entries(looks)) {
    const colorScheme = look === "dark" ? "dark" : "light";
    const page = await browser.newPage({ viewport: { width, height }, colorScheme });
    await page.goto(gateway.console);
    await page.getByText("connected", { exact: true }).waitFor();
    for (let index = 0; index < 60; index++) {
      const name = `${names[index % names.length]}-${index + 40}`;
      const container = { name: "app", image: images[index % images.length] };
      const object = {
        apiVersion: "v1",
        kind: "Pod",
        metadata: { name, namespace: "shop" },
        spec: { ...(index % 3 === 0 && { securityContext: { runAsUser: 0 } }), containers: [container] },
      };
      const user = { username: users[index % users.length] ?? "" };
      await gateway.send(
        paths[index % paths.length] ?? "",
        buildPodRequest({ namespace: "shop", object, userInfo: user }),
      );
      if (index % 5 === 0) await page.waitForTimeout(400);
    }
    for (const [name, show] of Object.entries(pictures)) {
      if (look === "phone" && !picturesOfPhone.includes(name)) continue;
      await show(page, (hash) => page.goto(`${gateway.console}${hash}`));
      await page.waitForTimeout(500);
      const file = join(target, `console-${name}-${look}.png`);
      await page.screenshot({ path: file });
      execFileSync("pngquant", ["--force", "--strip", "--speed=1", "--output", file, "32", file]);
    }
    await page.close();
  }
} finally {
  await browser.close();
  await gateway.stop();
  await rm(folder, { recursive: true });
}
