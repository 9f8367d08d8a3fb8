import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { Agent, request as httpsRequest } from "node:https";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Browser, chromium } from "playwright-core";

// What the tests and the pictures of the console share: a gateway in a process of its own, and a browser.

export const program = fileURLToPath(new URL("../infra/postern.js", import.meta.url));
const executablePath = "/usr/bin/chromium";

/** Returns why there is no browser, if so. */
export const findMissingChromium = (): string | undefined =>
  existsSync(executablePath) ? undefined : "chromium is not here: apt-get install chromium installs it";

export const openBrowser = (): Promise<Browser> =>
  chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });

export interface ConsoleGateway {
  /** The address of the gateway. */
  url: string;
  /** The address of the console, with its token. */
  console: string;
  /** Sends a review to `RULE/PHASE[/VARIANT]`, and returns the answer's response. */
  send(path: string, request: object): Promise<{ allowed: boolean }>;
  stop(): Promise<void>;
}

/**
 * Runs `postern serve` with this postern.yaml in a folder, on free ports or with these options. The path of a review is
 * RULE/PHASE, or RULE/PHASE/VARIANT.
 */
export const serveWithConsole = async (
  folder: string,
  config: object,
  options = ["--port", "0"],
  script = program,
): Promise<ConsoleGateway> => {
  const file = join(folder, "postern.yaml");
  await writeFile(file, JSON.stringify(config));
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  // An installed Postern takes a project's own rules from the folder where it runs.
  const child = spawn(process.execPath, [script, "serve", "--config", file, ...options], { env, cwd: folder });
  process.once("exit", () => child.kill());
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const end = options.includes("--no-console") ? /Ctrl-C ends it\.\n/ : /^(?:Console: .*|There is no console.*)\n/m;
  const printed = await waitForOutput(child, end);
  // If a test fails and doesn't stop the gateway, this process can end nevertheless.
  for (const handle of [child, child.stdin, child.stdout, child.stderr] as { unref?(): void }[]) handle.unref?.();
  const url = /Serving .* at (\S+)\. /.exec(printed)?.[1] ?? "";
  const ca = await readFile(join(folder, ".postern/ca.crt"));
  // Each review has a connection of its own: the gateway may close an idle one while a slow test uses it again.
  const agent = new Agent({ ca, maxSockets: 8 });
  // The gateway prints URLs such as https://localhost:8443/KEY/pod-security/validate. For this one, `urlPaths` has the
  // member "pod-security/validate": "/KEY/pod-security/validate".
  const urls = printed.matchAll(/https:\/\/\S+?(\/[^/\s]+\/([\w-]+\/\w+)\S*)$/gm);
  const urlPaths = new Map([...urls].map(([, urlPath, rulePath]) => [rulePath, urlPath]));
  return {
    url,
    console: /^Console: (.*)$/m.exec(printed)?.[1] ?? printed,
    send: (path, request) =>
      new Promise((resolve, reject) => {
        const headers = { "content-type": "application/json" };
        const [, rulePath = "", slashAndVariant = ""] = /^([^/]+\/[^/]+)(.*)$/.exec(path) ?? [];
        const sent = httpsRequest(
          `${url}${urlPaths.get(rulePath)}${slashAndVariant}`,
          { method: "POST", agent, headers },
          async (response) => {
            const body = Buffer.concat(await Array.fromAsync(response)).toString();
            if (response.statusCode === 200) resolve(JSON.parse(body).response);
            else reject(new Error(body));
          },
        );
        sent.on("error", reject);
        sent.end(JSON.stringify({ kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request }));
      }),
    stop: async () => {
      agent.destroy();
      child.ref();
      child.kill("SIGINT");
      await ended;
    },
  };
};

/** Returns what the gateway prints until `wanted`; ends the gateway and throws if that takes more than two minutes. */
const waitForOutput = (child: ChildProcess, wanted: RegExp): Promise<string> =>
  new Promise((resolve, reject) => {
    let printed = "";
    const timer = setTimeout(() => child.kill("SIGKILL"), 120_000).unref();
    for (const stream of [child.stdout, child.stderr])
      stream?.on("data", (chunk) => {
        printed += chunk;
        if (!wanted.test(printed)) return;
        clearTimeout(timer);
        resolve(printed);
      });
    child.once("exit", () => reject(new Error(`the gateway ended: ${printed}`)));
  });
