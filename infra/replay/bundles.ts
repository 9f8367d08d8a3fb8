import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Phase } from "#lib/rule.ts";
import { openPlayer } from "./player.ts";
import type { Scratch } from "./scratch.ts";
import { hasMember } from "./shares.ts";
import type { Part, Version } from "./sides.ts";

/** As long as Lambda gives a function to start, in milliseconds. */
const starting = 10_000;

/** The version that a folder of bundles is, each review within so many milliseconds. */
export const openBundles = async (
  name: string,
  folder: string,
  milliseconds: number,
  scratch: Scratch,
): Promise<Version> => {
  const functions = await functionsIn(folder);
  const player = openPlayer(folder, scratch);
  const parts = new Map<string, ReturnType<typeof load>>();
  const load = async (name: string): Promise<Part | { fault: string }> => {
    const reply = await player.ask({ function: name, milliseconds: Math.max(milliseconds, starting) });
    if (reply.fault !== undefined) return { fault: `it doesn't start: ${reply.fault}` };
    return reply.share === undefined ? { fault: "it holds no settings" } : { name, share: reply.share };
  };
  const part = (name: string) => {
    const known = parts.get(name) ?? load(name);
    parts.set(name, known);
    return known;
  };
  /** Where a rule is in a group, its own function has nothing to mutate any more. */
  const groupOf = async (rule: string): Promise<Part | undefined> => {
    for (const name of functions.groups) {
      const found = await part(name);
      if ("share" in found && hasMember(found.share, rule)) return found;
    }
    return undefined;
  };

  return {
    name,
    find: async (rule: string, phase: Phase) => {
      const group = phase === "mutate" ? await groupOf(rule) : undefined;
      if (group) return group;
      return functions.all.has(rule) ? part(rule) : { absent: "doesn't have it, or has it off everywhere" };
    },
    invoke: async (part, event) => {
      const reply = await player.ask({ function: part.name, event, milliseconds });
      return reply.fault === undefined ? { answer: reply.answer } : { fault: reply.fault };
    },
  };
};

/** Whether a folder is one that `build` wrote. */
export const isBuilt = async (folder: string): Promise<boolean> => (await functionsIn(folder)).all.size > 0;

/** What is in a folder, and which of it are groups: as nobody else, these say how their members are without a cluster. */
const functionsIn = async (folder: string) => {
  const [all, groups] = [new Set<string>(), new Set<string>()];
  for (const entry of await readdir(folder, { withFileTypes: true }).catch(() => [])) {
    const code = entry.isDirectory()
      ? await readFile(join(folder, entry.name, "index.cjs"), "utf8").catch(() => "")
      : "";
    if (code === "") continue;
    all.add(entry.name);
    if (/\\?"alone\\?":\{/.test(code)) groups.add(entry.name);
  }
  return { all, groups };
};
