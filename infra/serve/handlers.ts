import { type FSWatcher, type WatchListener, watch } from "node:fs";
import { readdir } from "node:fs/promises";
import { registerHooks } from "node:module";
import { basename, dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { decide } from "#lib/decide.ts";
import { endpoint, type Host } from "#lib/endpoint.ts";
import { group } from "#lib/group.ts";
import { type Broken, catalogueFolder, type Listed, readRules } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import type { Config } from "../config/config.ts";
import { isNamed, readProject } from "../project/project.ts";
import { placesNamed } from "../project/read.ts";
import { groupShareOf, servedRules, shareOf } from "../project/served.ts";
import type { Handler } from "./gateway.ts";

/** The rules as they stand in the folders and in postern.yaml, each as the endpoint that Lambda would run. */
export interface Workshop {
  config: Config;
  served: Listed[];
  handlers: ReadonlyMap<string, Handler>;
  /** Rules that postern.yaml names and that can't be loaded: they are not served, nor are groups that they are in. */
  broken: Broken[];
}

/** Opens the rules that can be loaded; throws if one of those in `kept` can't be loaded any more. */
export const openWorkshop = async (
  file: string,
  host: Host,
  judge = decide,
  kept: ReadonlySet<string> = new Set(),
): Promise<Workshop> => {
  const { catalogue, broken, config } = await readProject(file);
  const lost = broken.filter(({ name }) => kept.has(name));
  if (lost.length > 0) throw new Complaint(lost.map(({ sentence }) => sentence).join("; "));
  const served = servedRules(config, catalogue);
  const handlers = served.map((listed) => [listed.name, handlerOf(config, listed, host, judge)] as const);
  const named = broken.filter(({ name }) => isNamed(config)(name));
  return { config, served, handlers: new Map(handlers), broken: named };
};

/** The endpoint of a rule or a group, for whoever doesn't take it out of a bundle. */
export const handlerOf = (config: Config, listed: Listed, host: Host, judge = decide): Handler => {
  const { name, rule, members } = listed;
  if (!members) return endpoint(rule, shareOf(config, listed), host, judge);
  const rules = Object.fromEntries(members.map(({ name, rule }) => [name, rule]));
  return group(rules, groupShareOf({ name, members }, config.clusters), host, judge);
};

let generation = 0;

/**
 * Calls back after every change of a rule, of postern.yaml or of manifests that it names, one call after the other; rules are
 * then read anew. From when it answers, no change is missed.
 */
export const watchWorkshop = async (file: string, changed: () => Promise<void>): Promise<() => void> => {
  const rules = pathToFileURL(catalogueFolder).href;
  const hooks = registerHooks({
    resolve(specifier, context, next) {
      const found = next(specifier, context);
      return generation > 0 && found.url.startsWith(rules)
        ? { ...found, url: `${found.url.split("?")[0]}?${generation}` }
        : found;
    },
  });
  let watchers: FSWatcher[] = [];
  let places: string[] = [];
  let timer: NodeJS.Timeout | undefined;
  let last = Promise.resolve();
  const reload = async () => {
    generation += 1;
    await open();
    await changed();
  };
  // An editor's save is several events; a save that comes during a reload leads to another.
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      last = last.then(reload);
    }, 50);
  };
  // Folders, not files: editors replace a file by another. Not recursively: Node loses replaced files there.
  const open = async () => {
    const folders = (await readdir(catalogueFolder, { withFileTypes: true })).filter((entry) => entry.isDirectory());
    // While one of them is broken, those that it was about before.
    places = await readRules()
      .then(async ({ rules, broken }) => {
        const named = await placesNamed(file, rules);
        return broken.length === 0 ? named : [...new Set([...places, ...named])];
      })
      .catch(() => places);
    const below = (await Promise.all(places.map(foldersIn))).flat();
    close();
    watchers = [
      watch(dirname(resolve(file)), (_, name) => name === basename(file) && soon()),
      ...[catalogueFolder, ...folders.map(({ name }) => join(catalogueFolder, name))].map((folder) =>
        watch(folder, soon),
      ),
      ...below.flatMap((folder) => watchAt(folder, soon)),
      // One that goes away may come back.
      ...places.flatMap((place) => watchAt(dirname(place), (_, name) => name === basename(place) && soon())),
    ];
    // A folder that is removed takes its watcher along; the catalogue's own tells of it.
    for (const watcher of watchers) watcher.on("error", () => watcher.close());
  };
  const close = () => {
    for (const watcher of watchers) watcher.close();
  };
  await open();
  return () => {
    clearTimeout(timer);
    close();
    hooks.deregister();
  };
};

/** A folder and all below it; none of what is a file, or isn't there. */
const foldersIn = async (place: string): Promise<string[]> => {
  const entries = await readdir(place, { recursive: true, withFileTypes: true }).catch(() => undefined);
  const inner = entries?.filter((entry) => entry.isDirectory()).map(({ parentPath, name }) => join(parentPath, name));
  return inner === undefined ? [] : [place, ...inner];
};

const watchAt = (folder: string, heard: WatchListener<string>): FSWatcher[] => {
  try {
    return [watch(folder, heard)];
  } catch {
    // It isn't there; postern.yaml is read with a complaint about that.
    return [];
  }
};
