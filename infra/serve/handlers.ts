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

/** The rules that a server serves, their handlers, and the configuration that the handlers use. */
export interface LoadedHandlers {
  config: PosternConfig;
  served: CatalogueRule[];
  handlers: ReadonlyMap<string, GatewayHandler>;
  /** Rules that postern.yaml names but that can't be loaded. They and their groups are not served. */
  broken: BrokenRule[];
}

/**
 * Creates the handlers of all rules that can be loaded. Throws if a rule that is already served (`servedNames`) can't
 * be loaded any more.
 */
export const createServedRuleHandlers = async (
  file: string,
  host: EndpointHost,
  evaluate?: EvaluateRequest,
  servedNames: ReadonlySet<string> = new Set(),
): Promise<LoadedHandlers> => {
  const { catalogue, broken, config } = await readProject(file);
  const noLongerLoaded = broken.filter(({ name }) => servedNames.has(name));
  if (noLongerLoaded.length > 0) throw new Complaint(noLongerLoaded.map(({ sentence }) => sentence).join("; "));
  const served = listServedRulesAndGroups(config, catalogue);
  const handlers = served.map(
    (rule) => [rule.name, createGatewayHandler(createListedEndpoint(config, rule, host, evaluate))] as const,
  );
  const named = broken.filter(({ name }) => createRuleConfiguredPredicate(config)(name));
  return { config, served, handlers: new Map(handlers), broken: named };
};

/** Returns a handler that passes the gateway's requests to an endpoint. */
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

/** The number of reloads. It becomes part of the URLs of rules' modules, so that they are imported again. */
let generation = 0;

/**
 * Calls `handleChange` after every change of a rule, of postern.yaml or of files that it names, one call at a time.
 * Rules are imported again before each call. Once the returned promise resolves, no change is missed.
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
  let lastReload = Promise.resolve();
  const reload = async () => {
    generation += 1;
    await openWatchers();
    await handleChange();
  };
  // The reload starts 50 ms after the last event, because an editor's save causes several. A save during a reload
  // causes another reload.
  const scheduleReload = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      lastReload = lastReload.then(reload);
    }, 50);
  };
  // Folders are watched instead of files, because editors replace files. Each folder has its own watcher, because a
  // recursive watcher misses replaced files.
  const openWatchers = async () => {
    const ruleFolders = (await listRuleFolders([getProjectSource()])).map(({ folder }) => folder);
    // While postern.yaml or a rule can't be loaded, the list of files is incomplete. The former files stay watched.
    places = await listConfigPaths(file)
      .then(({ paths, isComplete }) => (isComplete ? paths : [...new Set([...places, ...paths])]))
      .catch(() => places);
    const subfolders = (await Promise.all(places.map(listFolders))).flat();
    close();
    watchers = [
      watch(dirname(resolve(file)), (_, name) => name === basename(file) && scheduleReload()),
      // The project's folder is watched, too, because functions/ may be created later.
      ...watchFolder(getProjectRoot(), (_, name) => name === basename(functionsFolder) && scheduleReload()),
      ...[functionsFolder, ...ruleFolders].flatMap((folder) => watchFolder(folder, scheduleReload)),
      ...subfolders.flatMap((folder) => watchFolder(folder, scheduleReload)),
      // The parent folder is watched, too: a deleted file or folder may be created again.
      ...places.flatMap((place) =>
        watchFolder(dirname(place), (_, name) => name === basename(place) && scheduleReload()),
      ),
    ];
    // The watcher of a deleted folder fails. The watcher of the folder's parent reports the deletion.
    for (const watcher of watchers) watcher.on("error", () => watcher.close());
  };
  const close = () => {
    for (const watcher of watchers) watcher.close();
  };
  await openWatchers();
  return () => {
    clearTimeout(timer);
    close();
    hooks.deregister();
  };
};

/** Returns a folder and all folders in it; nothing for a file. */
const listFolders = async (place: string): Promise<string[]> => {
  const entries = await readdir(place, { recursive: true, withFileTypes: true }).catch(() => undefined);
  const inner = entries?.filter((entry) => entry.isDirectory()).map(({ parentPath, name }) => join(parentPath, name));
  return inner === undefined ? [] : [place, ...inner];
};

/** Calls the listener when a file in the folder changes. */
const watchFolder = (folder: string, listener: WatchListener<string>): FSWatcher[] => {
  try {
    return [watch(folder, listener)];
  } catch {
    // A folder that doesn't exist can't be watched. Reading postern.yaml reports that it is missing.
    return [];
  }
};
