import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { delimiter, dirname, join, sep } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parse as parseYaml } from "yaml";
import { cacheVariables } from "./checkout.ts";
import { findFreePort } from "./control-plane/process.ts";

// Runs the commands of the documentation's pages as a reader does: the commands of one page in their order, in one
// clone of the checkout, with the machine's own Node. pages.yaml says which commands can't run, and why.

const root = fileURLToPath(new URL("..", import.meta.url));

type PageTier = "local" | "cluster";

/** What pages.yaml says about one page. */
interface PageEntry {
  /** The tier of tests that runs the page's commands, by default local: the tier has the servers that these call. */
  tier?: PageTier;
  /**
   * The commands that aren't run, and the shown outputs that aren't compared, by their first lines, with the reasons.
   */
  skip?: Record<string, string>;
  /** The exit codes of the commands that end with another one than 0. */
  exits?: Record<string, number>;
  /** Texts of the page, such as an address, with the texts that replace them in a test. */
  replace?: Record<string, string>;
  /** Files that the page assumes, by their paths in the checkout, with their contents. */
  files?: Record<string, string>;
}

/** The commands of one block, and the outputs that the page shows after it. */
export interface PageBlock {
  commands: string[];
  outputs: string[];
}

const entries: Record<string, PageEntry> = parseYaml(readFileSync(new URL("pages.yaml", import.meta.url), "utf8"));
export const listPageEntries = () => Object.entries(entries);

/** Returns the pages that have commands, with their blocks. */
export const readPages = (): Map<string, PageBlock[]> => {
  const files = globSync("**/*.md", { cwd: root, exclude: ["**/node_modules/**", "**/dist/**", "**/.*/**"] }).sort();
  const pages = files.map((page) => [page, parsePage(readFileSync(join(root, page), "utf8"))] as const);
  return new Map(pages.filter(([, blocks]) => blocks.length > 0));
};

/** Returns the blocks of commands of a page. A block without a language is an output of the block before it. */
export const parsePage = (text: string): PageBlock[] => {
  const blocks: PageBlock[] = [];
  for (const [, indent = "", language, content = ""] of text.matchAll(/^( *)```(\w*)\n([\s\S]*?)^ *```$/gm)) {
    const lines = content.split("\n").map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line));
    if (language === "sh") blocks.push({ commands: splitCommands(lines), outputs: [] });
    if (language === "") blocks.at(-1)?.outputs.push(lines.join("\n"));
  }
  return blocks;
};

/** Returns the commands of a block. A command continues after a backslash, in quotes, and in a here-document. */
const splitCommands = (lines: readonly string[]): string[] => {
  const commands: string[] = [];
  let command = "";
  for (const line of lines) {
    command += command === "" ? line : `\n${line}`;
    const [, lastLine] = /<<'?(\w+)/.exec(command) ?? [];
    const isInQuotes = command.split('"').length % 2 === 0;
    const continues = lastLine === undefined ? line.endsWith("\\") || isInQuotes : line !== lastLine;
    if (continues) continue;
    if (command.trim() !== "") commands.push(command);
    command = "";
  }
  assert.equal(command.trim(), "", `the last command of a block doesn't end: ${command}`);
  return commands;
};

/** Returns the first line of a command or an output, without a comment: its key in pages.yaml. */
export const getFirstLine = (text: string): string => (text.trim().split("\n")[0] ?? "").replace(/\s+#.*$/, "");

/**
 * Reports whether an output has the lines that a page shows; if `isWholeOutput`, it must have no other lines. In
 * `shown`, "…" stands for any text, and alone on a line for any lines. A word before "…", such as "ZUgAQ1…" for a key,
 * may be another one in the output.
 */
export const hasShownOutput = (shown: string, output: string, isWholeOutput: boolean): boolean => {
  const lines = normalise(shown.trim().replace(/[\w-]+…/g, "…")).split("\n");
  const patterns = lines.map((line) =>
    line === "…" ? "(?:.*\n)*?" : `${line.split("…").map(RegExp.escape).join(".*?")}\n`,
  );
  const [start, end] = isWholeOutput ? ["^", "$"] : ["(?:^|\n)", ""];
  return new RegExp(`${start}${patterns.join("")}${end}`).test(`${normalise(output.trim())}\n`);
};

/** Replaces what differs from run to run: times, durations and the widths of columns. */
const normalise = (text: string): string =>
  text
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME")
    .replace(/\b\d\d:\d\d:\d\d\.\d+/g, "TIME")
    .replace(/\b[\d.]+ (ms|s)\b/g, "DURATION")
    .split("\n")
    .map((line) => line.trim().replace(/ +/g, " "))
    .join("\n");

/** Matches commands that start a server, which runs until it is interrupted. */
const serverCommand = /^npm start\b|^npx postern (?:serve|record)(?! --from)\b/;

/**
 * Defines the tests of the pages of a tier. `start` starts the tier's servers and returns the variables that commands
 * need to find these servers. The local tier also runs the pages of other tiers, except their commands that need an API
 * server. In a run of all tests, it leaves these pages to their own tiers.
 */
export const testPages = (
  tier: PageTier,
  start: (folder: string) => Promise<{ env: Record<string, string>; path?: string; stop(): Promise<void> }>,
): void => {
  // Only a run of all tests sets this variable.
  const isRunOfAllTests = Boolean(process.env.POSTERN_PARTS);
  for (const [page, blocks] of readPages()) {
    const entry = entries[page] ?? {};
    const pageTier = entry.tier ?? "local";
    if (pageTier !== tier && (tier !== "local" || isRunOfAllTests)) continue;
    const findSkipReason = (command: string) => {
      const needsCluster = pageTier !== tier && /\bkubectl /.test(command);
      const reason = needsCluster ? "needs an API server: npm run test:cluster runs it" : undefined;
      return entry.skip?.[getFirstLine(command)] ?? reason;
    };
    if (blocks.every(({ commands }) => commands.every(findSkipReason))) continue;
    describe(page, () => testPage(entry, blocks, findSkipReason, start));
  }
};

const testPage = (
  entry: PageEntry,
  blocks: readonly PageBlock[],
  findSkipReason: (command: string) => string | undefined,
  start: Parameters<typeof testPages>[1],
): void => {
  // The first hook opens the terminal, in which the tests below run the page's commands.
  const opened = Promise.withResolvers<PageTerminal>();
  const terminal = opened.promise;
  let folder = "";
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-pages-"));
    opened.resolve(openTerminal(folder, entry, start));
    await terminal;
  });
  after(async () => {
    await (await terminal).stop();
    await rm(folder, { recursive: true, force: true });
  });
  for (const { commands, outputs } of blocks) {
    const printed: string[] = [];
    for (const command of commands)
      it(getFirstLine(command), { skip: findSkipReason(command) ?? false, timeout: 300_000 }, async () => {
        printed.push(await (await terminal).run(command, entry.exits?.[getFirstLine(command)] ?? 0));
      });
    // If a command is skipped, the block's outputs aren't complete.
    for (const output of commands.some(findSkipReason) ? [] : outputs)
      it(`prints ${getFirstLine(output)}`, { skip: entry.skip?.[getFirstLine(output)] ?? false }, async () =>
        (await terminal).expectOutput(output, printed.join("")),
      );
  }
};

/** What a reader of a page uses: a clone of the checkout, a shell, and a second shell for a server. */
interface PageTerminal {
  /** Runs a command and returns its output. A command that starts a server first stops the server that runs. */
  run(command: string, exitCode: number): Promise<string>;
  /** Fails unless the commands (`printed`) or the running server have printed what the page shows. */
  expectOutput(shown: string, printed: string): Promise<void>;
  stop(): Promise<void>;
}

const openTerminal = async (
  folder: string,
  { replace = {}, files = {} }: PageEntry,
  start: Parameters<typeof testPages>[1],
): Promise<PageTerminal> => {
  const clone = join(folder, "postern");
  cloneCheckout(clone);
  for (const [file, text] of Object.entries(files)) {
    await mkdir(dirname(join(clone, file)), { recursive: true });
    await writeFile(join(clone, file), text);
  }
  const servers = await start(folder);
  const env: Record<string, string> = {
    PATH: listProgramFolders(servers.path).join(delimiter),
    HOME: folder,
    XDG_CACHE_HOME: process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"),
    npm_config_cache: process.env.npm_config_cache ?? join(homedir(), ".npm"),
    npm_config_prefer_offline: "true",
    npm_config_update_notifier: "false",
    ...cacheVariables,
    NODE_COMPILE_CACHE: join(clone, ".compiled"),
    NODE_COMPILE_CACHE_PORTABLE: "1",
    ...servers.env,
  };
  const port = await findFreePort();
  const consolePort = await findFreePort();
  const replaced = { ...replace, "8443": String(port), "8444": String(consolePort) };
  const adapt = (text: string) =>
    Object.entries(replaced).reduce((adapted, [found, wanted]) => adapted.replaceAll(found, wanted), text);

  /** Starts a command in the folder and with the variables that the commands before it have left. */
  const startCommand = (command: string) => {
    const [cwd, variables] = [join(folder, "cwd"), join(folder, "variables")];
    const script = `[ -e ${cwd} ] && cd "$(cat ${cwd})" && . ${variables}\n${command}\ncode=$?; pwd > ${cwd}; export -p > ${variables}; exit $code`;
    // Both the command and what it starts are in one process group.
    const child = spawn("bash", ["-o", "pipefail", "-c", script], { cwd: clone, env, detached: true });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk) => {
        output += chunk;
      });
    child.stdin.end();
    const closed = once(child, "close").then(([code]) => Number(code));
    return { child, closed, hasEnded: () => child.exitCode !== null, getOutput: () => output };
  };
  let server: ReturnType<typeof startCommand> | undefined;
  const stopServer = async () => {
    if (server?.child.pid !== undefined && !server.hasEnded()) process.kill(-server.child.pid, "SIGINT");
    await server?.closed;
    server = undefined;
  };
  return {
    run: async (command, exitCode) => {
      const adapted = adapt(command);
      if (!serverCommand.test(adapted)) {
        const { closed, getOutput } = startCommand(adapted);
        assert.equal(await closed, exitCode, getOutput());
        return getOutput();
      }
      await stopServer();
      const console = adapted.includes("postern record") ? "" : ` --console-port ${consolePort}`;
      const started = startCommand(`${adapted.replace(/^npm start(?: --)?/, "npm start --")} --port ${port}${console}`);
      server = started;
      while (!started.getOutput().includes("Ctrl-C ends it")) {
        assert.ok(!started.hasEnded(), started.getOutput());
        await wait(50);
      }
      return "";
    },
    expectOutput: async (shown, printed) => {
      const wanted = adapt(shown);
      const isShown = () =>
        hasShownOutput(wanted, printed, true) || hasShownOutput(wanted, server?.getOutput() ?? "", false);
      // A server prints its lines a moment after it has answered.
      for (let tries = 0; tries < 100 && server !== undefined && !isShown(); tries += 1) await wait(50);
      assert.ok(
        isShown(),
        `the page shows\n${wanted}\nand what was printed is\n${server?.getOutput() ?? ""}${printed}`,
      );
    },
    stop: async () => {
      await stopServer();
      await servers.stop();
    },
  };
};

/** Clones this checkout with its uncommitted changes, and links its node_modules. */
const cloneCheckout = (clone: string): void => {
  const runGit = (cwd: string, ...words: string[]) => execFileSync("git", words, { cwd, encoding: "utf8" });
  runGit(root, "clone", "--quiet", "--shared", root, clone);
  runGit(clone, "checkout", "--quiet", "-B", "main");
  const changed = runGit(root, "ls-files", "-z", "--modified", "--others", "--exclude-standard");
  for (const file of changed.split("\0").filter(Boolean)) {
    rmSync(join(clone, file), { force: true });
    if (existsSync(join(root, file))) cpSync(join(root, file), join(clone, file));
  }
  // Each package has a link of its own: if a command of a page removes packages, those of this checkout stay.
  mkdirSync(join(clone, "node_modules"));
  for (const name of readdirSync(join(root, "node_modules")))
    symlinkSync(join(root, "node_modules", name), join(clone, "node_modules", name));
  // NODE_COMPILE_CACHE of the page's commands is this link to the cache of all tests, so that Node starts faster.
  symlinkSync(cacheVariables.NODE_COMPILE_CACHE, join(clone, ".compiled"));
  appendFileSync(join(clone, ".git/info/exclude"), ".compiled\n");
};

/** Returns the folders of programs (PATH) that a reader has, without those that npm adds for a script. */
const listProgramFolders = (first?: string): string[] => [
  ...(first === undefined ? [] : [first]),
  ...(process.env.PATH ?? "").split(delimiter).filter((folder) => !folder.split(sep).includes("node_modules")),
];
