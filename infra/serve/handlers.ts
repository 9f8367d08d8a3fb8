import { isUtf8 } from "node:buffer";
import { type FSWatcher, type WatchListener, watch } from "node:fs";
import { readdir } from "node:fs/promises";
import { registerHooks } from "node:module";
import { basename, dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { computeDeadline, parseTimeout } from "#lib/core/deadline.ts";
import { buildAnswerHeaders, type Endpoint, type EndpointHost } from "#lib/core/endpoint.ts";
import type { EvaluateRequest } from "#lib/core/evaluation.ts";
import { createNotTextFailure } from "#lib/failure.ts";
import type { BrokenRule, CatalogueRule } from "../catalogue/registry.ts";
import { getFunctionsFolder, getProjectSource, listRuleFolders } from "../catalogue/sources.ts";
import { Complaint } from "../cli/complaint.ts";
import { getProjectRoot } from "../cli/roots.ts";
import type { PosternConfig } from "../config/config.ts";
import { createRuleConfiguredPredicate, listConfigPaths, readProject } from "../project/project.ts";
import { createListedEndpoint, listServedRulesAndGroups } from "../project/served.ts";
import { functionTimeout, type GatewayHandler } from "./gateway.ts";

/** The rules that a server serves, with their handlers and the config they were made from. */
export interface LoadedHandlers {
  config: PosternConfig;
  served: CatalogueRule[];
  handlers: ReadonlyMap<string, GatewayHandler>;
  /** Rules that postern.yaml names but that can't be loaded. They are not served, nor are groups with them. */
  broken: BrokenRule[];
}

/**
 * Creates the handlers of all rules that can be loaded. Throws if a rule in `kept`, which is served already, can't be
 * loaded any more.
 */
export const createServedRuleHandlers = async (
  file: string,
  host: EndpointHost,
  evaluate?: EvaluateRequest,
  kept: ReadonlySet<string> = new Set(),
): Promise<LoadedHandlers> => {
  const { catalogue, broken, config } = await readProject(file);
  const lost = broken.filter(({ name }) => kept.has(name));
  if (lost.length > 0) throw new Complaint(lost.map(({ sentence }) => sentence).join("; "));
  const served = listServedRulesAndGroups(config, catalogue);
  const handlers = served.map(
    (listed) => [listed.name, createGatewayHandler(createListedEndpoint(config, listed, host, evaluate))] as const,
  );
  const named = broken.filter(({ name }) => createRuleConfiguredPredicate(config)(name));
  return { config, served, handlers: new Map(handlers), broken: named };
};

/** Lets an endpoint answer the gateway's requests. */
export const createGatewayHandler =
  ({ answerRequest }: Endpoint): GatewayHandler =>
  async ({ method, path, query, headers, body }) => {
    const timeout = parseTimeout(new URLSearchParams(query).get("timeout") ?? "");
    const answer = await answerRequest({
      method,
      path,
      contentType: headers["content-type"] ?? "",
      readBody: () => decodeText(body),
      deadline: computeDeadline({ timeout }, functionTimeout),
    });
    return { statusCode: answer.code, headers: buildAnswerHeaders(answer.code), body: answer.body };
  };

const decodeText = (body: Buffer): string => {
  if (!isUtf8(body)) throw createNotTextFailure();
  return body.toString();
};

let generation = 0;

/**
 * Calls `handleChange` after every change of a rule, of postern.yaml or of files that it names, one call at a time.
 * Rules are then imported again. Once the promise resolves, no change is missed.
 */
export const watchRulesAndConfig = async (file: string, handleChange: () => Promise<void>): Promise<() => void> => {
  const functionsFolder = getFunctionsFolder();
  const rules = pathToFileURL(functionsFolder).href;
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
    await handleChange();
  };
  // The reload starts 50 ms after the last event, because an editor's save causes several. A save during a reload
  // causes another reload.
  const scheduleReload = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      last = last.then(reload);
    }, 50);
  };
  // Folders are watched, because editors replace files; singly, because a recursive watch misses replaced files.
  const open = async () => {
    const ruleFolders = (await listRuleFolders([getProjectSource()])).map(({ folder }) => folder);
    // The former files of a rule are still watched while the rule can't be loaded.
    places = await listConfigPaths(file)
      .then(({ paths, isComplete }) => (isComplete ? paths : [...new Set([...places, ...paths])]))
      .catch(() => places);
    const below = (await Promise.all(places.map(listFolders))).flat();
    close();
    watchers = [
      watch(dirname(resolve(file)), (_, name) => name === basename(file) && scheduleReload()),
      // The project's folder is watched, too, because functions/ may be created later.
      ...watchFolder(getProjectRoot(), (_, name) => name === basename(functionsFolder) && scheduleReload()),
      ...[functionsFolder, ...ruleFolders].flatMap((folder) => watchFolder(folder, scheduleReload)),
      ...below.flatMap((folder) => watchFolder(folder, scheduleReload)),
      // The parent folder is watched, too: a deleted file or folder may be created again.
      ...places.flatMap((place) =>
        watchFolder(dirname(place), (_, name) => name === basename(place) && scheduleReload()),
      ),
    ];
    // A folder that is deleted ends its watcher with an error; the catalogue's watcher reports the deletion.
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

const listFolders = async (place: string): Promise<string[]> => {
  const entries = await readdir(place, { recursive: true, withFileTypes: true }).catch(() => undefined);
  const inner = entries?.filter((entry) => entry.isDirectory()).map(({ parentPath, name }) => join(parentPath, name));
  return inner === undefined ? [] : [place, ...inner];
};

const watchFolder = (folder: string, listener: WatchListener<string>): FSWatcher[] => {
  try {
    return [watch(folder, listener)];
  } catch {
    // A folder that doesn't exist isn't watched; reading postern.yaml reports that it is missing.
    return [];
  }
};
