import { isIP } from "node:net";
import { dirname, join, relative } from "node:path";
import { createListPage } from "#lib/cluster/list-page.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import type { EndpointHost } from "#lib/core/endpoint.ts";
import type { AnsweredReviewFacts } from "#lib/core/log-line.ts";
import { getVerdictForLog } from "#lib/core/log-line.ts";
import { reconcileClusters } from "#lib/core/reconciliation.ts";
import { createUrlKeyVerifier } from "#lib/core/url-key.ts";
import { warmUpCueEngine } from "#lib/cue/engine.ts";
import { createMemoryLedger } from "#lib/ledger.ts";
import { formatError } from "#lib/masking/masked-error.ts";
import type { OpenCapabilities } from "#lib/needs.ts";
import type { RecordingHostAndEvaluation } from "#lib/recording/recorder.ts";
import { getObjectName } from "#lib/refusals.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { watchForLoops } from "../catalogue/rule-loops.ts";
import {
  type CommandOption,
  commonCommandOptions,
  formatTable,
  type ParsedOptions,
  writeOutput,
} from "../cli/command.ts";
import { Complaint, describeUnhandledRejection, toSentence } from "../cli/complaint.ts";
import { handleInterrupt } from "../cli/interrupt.ts";
import { formatCount } from "../cli/progress.ts";
import { getConfigFile, getProjectRoot } from "../cli/roots.ts";
import type { PosternConfig, RuleConfig } from "../config/config.ts";
import { listRulesAskingCluster, readClusterConnections } from "../config/connections.ts";
import { readKubeconfigVariable } from "../config/kubeconfig.ts";
import { writeSchemas } from "../config/schemas.ts";
import { readOrCreateServerCertificate, readOrCreateUrlSigner, type WebhookUrlSigner } from "../keys/keys.ts";
import { readAllRules, requireConfig } from "../project/project-rules.ts";
import { buildEndpointConfig } from "../project/served.ts";
import { type GatewayHandler, openImitatedApiGateway } from "./gateway.ts";
import { createServedRuleHandlers, type LoadedHandlers, watchRulesAndConfig } from "./handlers.ts";

/** The options of all verbs that serve rules on this machine. */
export const servingCommandOptions = {
  config: commonCommandOptions.config,
  host: {
    type: "string",
    value: "HOST",
    default: "127.0.0.1",
    says: "the address to listen on; it is also in the certificate",
  },
  port: { type: "string", value: "PORT", default: "8443", says: "the port to listen on; 0 chooses a free port" },
  watch: {
    type: "boolean",
    says: "reload rules, postern.yaml, and the manifests and kubeconfigs that it names, when they change",
  },
} satisfies Record<string, CommandOption>;

/** What an added listener, such as the console, gets to know about the gateway. */
export interface ServedProject {
  /** The path of postern.yaml. */
  file: string;
  /** The folder of keys. */
  state: string;
  /** The value of --port. 0 means that the gateway has chosen a free port. */
  port: number;
  /** Returns the rules and the config that are served now. */
  getLoaded(): LoadedHandlers;
}

/** A server beside the gateway, such as the console, and the line that is printed about it. */
export interface AddedListener {
  line: string;
  close(): Promise<void>;
}

type FindRuleConfig = (cluster: string, rule: string) => RuleConfig | undefined;

/** Reads the value of an option with a port. */
export const readPort = (options: ParsedOptions, option: string): number | undefined => {
  const port = options.number(option);
  if (port !== undefined && port > 65_535) throw new Complaint(`--${option} takes a number up to 65535, not ${port}`);
  return port;
};

/**
 * Serves the rules of postern.yaml until Ctrl-C. `wrapEndpoint` may wrap the host and the evaluation, to record or show
 * reviews. It may also return a function that opens another server beside the gateway.
 */
export const serveRules = async (
  options: ParsedOptions,
  wrapEndpoint = (host: EndpointHost, _: FindRuleConfig): Listening => ({ host }),
): Promise<void> => {
  // This must be first: without a postern.yaml, no keys are written.
  requireConfig();
  const file = getConfigFile();
  const state = join(dirname(file), ".postern");
  const host = options.text("host") ?? "";
  const port = readPort(options, "port") ?? 8443;
  if (!isIP(host) && !/^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/i.test(host))
    throw new Complaint(`--host takes an address or a name, not "${host}"`);
  const signer = await readOrCreateUrlSigner(state);
  const ledger = createMemoryLedger();
  let openCapabilities: OpenCapabilities = createUnconnectedCapabilities;
  let findRuleConfig: FindRuleConfig = () => undefined;
  const {
    host: wrappedHost,
    evaluate,
    open: openBeside,
  } = wrapEndpoint(
    {
      publicKeys: signer.publicKey,
      openCapabilities: (cluster: string, milliseconds: number) => openCapabilities(cluster, milliseconds),
      writeLogLine: (report: AnsweredReviewFacts) => writeOutput(formatReport(report)),
    },
    (cluster, rule) => findRuleConfig(cluster, rule),
  );

  let connected: readonly string[] = [];
  let kept: ReadonlySet<string> = new Set();
  const open = async () => {
    const opened = await createServedRuleHandlers(file, wrappedHost, evaluate, kept);
    // Duplicates are removed: a rule that also validates is served in its group and by itself.
    const rules = [...new Set(opened.served.flatMap((listed) => listed.members ?? [listed]))];
    const { connections, manifestClusters, faults } = await readClusterConnections(opened.config, rules, file, "here");
    const isLost = (name: string) => {
      const cluster = opened.config.clusters.get(name);
      const isRead = cluster?.connect && listRulesAskingCluster(rules, cluster).length > 0;
      return isRead && !connections.has(name) && !manifestClusters.has(name);
    };
    // If a reload can't read the kubeconfig or manifests of a cluster, it fails. The former ones stay in use.
    if (connected.some(isLost)) throw new Complaint(faults.join("; "));
    for (const fault of faults) writeOutput(`${fault}\n`);
    for (const { name, sentence } of opened.broken) writeOutput(`${name} is not served: ${sentence}\n`);
    connected = [...connections.keys(), ...manifestClusters.keys()];
    if (rules.some((listed) => alwaysRunsCue(listed, opened.config))) warmUpCueEngine();
    kept = new Set(rules.map(({ name }) => name));
    findRuleConfig = (cluster, rule) => opened.config.clusters.get(cluster)?.rules.get(rule);
    const openLive = createLiveCapabilities(Object.fromEntries(connections), {
      openLedger: () => ledger,
      print: () => {},
      createPages: createListPage,
    });
    openCapabilities = (cluster, milliseconds) => {
      const manifests = manifestClusters.get(cluster);
      if (manifests === undefined) return openLive(cluster, milliseconds);
      // `anew` reads a cluster again. Manifests are always current, so clusters that they describe don't need it.
      const { anew: _, ...services } = openLive(cluster, milliseconds);
      return { ...services, ...manifests };
    };
    return opened;
  };
  const opened = await open();
  let loaded = opened;
  let schemas = updateSchemas(file);
  const gateway = await openImitatedApiGateway(await readOrCreateServerCertificate(state, host), host, port);
  const watch = watchForLoops(
    opened.served.flatMap((listed) => listed.members ?? [listed]),
    (sentence) => {
      writeOutput(`${formatTime()} ${sentence}; open requests get the code 504\n`);
      gateway.endRequests(sentence);
    },
  );
  const watchCalls =
    (handler: GatewayHandler): GatewayHandler =>
    (request) => {
      watch.noteProgress();
      return handler(request);
    };
  const updateGateway = ({ config: { clusters }, handlers }: LoadedHandlers) =>
    gateway.serve(
      new Map([...handlers].map(([name, handler]) => [name, watchCalls(handler)])),
      createUrlKeyVerifier(signer.publicKey, (cluster) => clusters.get(cluster)?.keyVersions ?? []),
    );
  updateGateway(opened);
  const ca = ["--ca", relative(process.cwd(), join(state, "ca.crt"))];
  const config = options.text("config");
  const reload = async () => {
    try {
      const fresh = await open();
      loaded = fresh;
      updateGateway(fresh);
      writeOutput(`${formatTime()} reloaded: ${fresh.served.map(({ name }) => name).join(", ")}\n`);
      schemas = schemas.then(() => updateSchemas(file));
    } catch (error) {
      const sentence = error instanceof Complaint ? error.message : toSentence(error);
      writeOutput(`${formatTime()} not reloaded, serving as before: ${sentence}\n`);
    }
  };

  // Watching starts before the URLs are printed, because a user may change a file as soon as they appear.
  const stopWatching = options.flag("watch") ? await watchRulesAndConfig(file, reload) : () => {};
  const beside = await openBeside?.({ file, state, port, getLoaded: () => loaded });
  const welcome = formatWelcome(opened, signer, gateway.url, [
    ...ca,
    ...(config === undefined ? [] : ["--config", config]),
  ]);
  writeOutput(beside ? `${welcome}${beside.line}\n` : welcome);
  const stopReconciling = reconcileEachMinute(
    () => loaded,
    (cluster, milliseconds) => openCapabilities(cluster, milliseconds),
  );
  // A function in AWS would crash, and start again for the next request.
  process.on("unhandledRejection", (reason) =>
    writeOutput(`${formatTime()} ${describeUnhandledRejection(reason, getProjectRoot())}\n`),
  );
  await new Promise<void>((interrupt) => handleInterrupt(interrupt));
  writeOutput(`${formatTime()} shutting down: answering open requests\n`);
  stopReconciling();
  stopWatching();
  await beside?.close();
  await gateway.close();
  watch.stop();
  await schemas;
};

/** The time limit for one rule that reconciles clusters. The process doesn't end before. */
const reconcileMilliseconds = 20_000;

/**
 * Lets rules reconcile the clusters that can be read, once a minute, as functions in AWS do. Returns a function that
 * stops this.
 */
const reconcileEachMinute = (getLoaded: () => LoadedHandlers, openCapabilities: OpenCapabilities): (() => void) => {
  let timer: NodeJS.Timeout | undefined;
  const reconcile = async () => {
    const { config, served } = getLoaded();
    const clusters = [...config.clusters].flatMap(([name, { connect }]) =>
      (connect ?? readKubeconfigVariable(name)) ? [name] : [],
    );
    for (const listed of served.filter(({ rule }) => rule.reconcile)) {
      const end = Date.now() + reconcileMilliseconds;
      const endpoint = buildEndpointConfig(config, listed);
      await reconcileClusters(listed.rule, endpoint, clusters, openCapabilities, end, (cluster, result) => {
        const outcome =
          typeof result === "string" ? result : toSentence(formatError(result, { rule: listed.name, cluster }));
        writeOutput(`${formatTime()} ${cluster} ${listed.name} ${outcome.replace(/\p{Cc}/gu, "?")}\n`);
      });
    }
    if (timer) timer = setTimeout(reconcile, 60_000);
  };
  timer = setTimeout(reconcile);
  return () => {
    clearTimeout(timer);
    timer = undefined;
  };
};

/** Updates the JSON schemas for editors. The schemas contain the settings of all rules, also of rules that are off. */
const updateSchemas = async (file: string) =>
  readAllRules()
    .then((rules) => writeSchemas(dirname(file), rules))
    .catch((error) => writeOutput(`the schemas for editors are not written: ${toSentence(error)}\n`));

/** Reports whether a rule that is on runs CUE in every review of a cluster. */
const alwaysRunsCue = ({ name, rule }: CatalogueRule, { clusters }: PosternConfig): boolean =>
  [...clusters.values()].some(({ rules }) => {
    const setup = rules.get(name);
    if (setup === undefined || setup.mode === "off") return false;
    // Only the need for CUE has `isAwaited`. It reports whether every review uses CUE with these settings.
    return Object.values(rule.needs ?? {}).some((need) => need.isAwaited?.(setup.settings));
  });

type Listening = Pick<RecordingHostAndEvaluation, "host"> &
  Partial<RecordingHostAndEvaluation> & { open?(project: ServedProject): Promise<AddedListener> };

/** Returns what `postern serve` prints first: the URLs of each cluster, and the command that registers them. */
const formatWelcome = (
  { config, served }: LoadedHandlers,
  signer: WebhookUrlSigner,
  url: string,
  options: string[],
): string => {
  const clusters = [...config.clusters].map(([cluster, { keyVersions, rules }]) => {
    const segment = signer.signSegment(cluster, keyVersions.at(-1) ?? 1);
    const getMode = ({ name }: CatalogueRule) => rules.get(name)?.mode ?? "off";
    const rows = served.flatMap(({ members, ...listed }) => {
      const { name, phases } = listed;
      const mode = members?.map((member) => `${member.name}: ${getMode(member)}`).join(", ") ?? getMode(listed);
      const isGrouped = config.groups.some(({ members }) => members.some((member) => member.name === name));
      // Groups only mutate. Their members validate by themselves.
      const servedPhases = phases.filter((phase) => phase === "validate" || !isGrouped);
      return servedPhases.map((phase) => [name, phase, mode, `${url}/${segment}/${name}/${phase}`]);
    });
    const words = ["npx", "postern", "manifests", "--cluster", cluster, "--url", url, ...options];
    const register = `${words.map(quoteWord).join(" ")} | kubectl apply -f -`;
    return `Cluster ${cluster}\n\n${formatTable([["RULE", "PHASE", "MODE", "URL"], ...rows])}\nTo register: ${register}\n`;
  });
  return `${clusters.join("\n")}\nServing ${formatCount(served.length, "rule")} at ${url}. Ctrl-C ends it.\n`;
};

const quoteWord = (word: string) => (/^[\w@%+=:,./[\]-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

const formatTime = () => new Date().toISOString().slice(11, 23);

/** Returns the line that the gateway prints about a review. */
export const formatReport = (report: AnsweredReviewFacts): string => {
  const { request, cluster = "unknown", rule, group, phase, operations, milliseconds, code, error } = report;
  const what = request
    ? [
        request.operation,
        [request.kind.kind, request.subResource].filter(Boolean).join("/"),
        [request.namespace, getObjectName(request)].filter(Boolean).join("/"),
      ]
    : [];
  const verdict =
    code === 200 ? getVerdictForLog(report) : `${code} ${error ? toSentence(formatError(error, report)) : ""}`;
  const patch = operations > 0 ? [`${operations} operation${operations > 1 ? "s" : ""}`] : [];
  const words = [
    cluster,
    [rule, phase].filter(Boolean).join("/"),
    ...(group ? [`(${group})`] : []),
    ...what,
    verdict,
    ...patch,
    `${milliseconds.toFixed(2)} ms`,
  ];
  // Names come from the caller. Control characters in them could harm the user's terminal.
  return `${formatTime()} ${words.join(" ").replace(/\p{Cc}/gu, "?")}\n`;
};
