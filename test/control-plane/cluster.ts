import { generateKeyPairSync, randomBytes } from "node:crypto";
import { cp, mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import type { ControlPlaneBinaries } from "./binaries.ts";
import { createTokenClient, type TestClusterClient } from "./client.ts";
import { findFreePort, type RunningProgram, startProgram } from "./process.ts";

/** The options of a test cluster: what its API server does differently from Kubernetes' defaults. */
export interface TestClusterOptions {
  /** The admission plugins to turn on, and those to turn off (`disable`), by their compiled-in names. */
  enable?: string[];
  disable?: string[];
  /** Plugins that are off while `fill` creates objects. A restart then turns them on, even those in `disable`. */
  late?: { enable: string[]; fill(as: TestCluster["as"]): Promise<unknown> };
  /** Further flags of kube-apiserver. */
  flags?: string[];
  /** A folder with the etcd data from which the test cluster starts, written by another cluster's `stopAndCopyData`. */
  store?: string;
  /** Whether the API server writes an audit log, which `readAuditAnnotations` reads. */
  audit?: boolean;
  /** The controllers that kube-controller-manager runs, such as garbage-collector-controller; it has all rights. */
  controllers?: string[];
  /** Whether RBAC decides what users may do. Without it every user has every right. */
  rbac?: boolean;
  /** The users of the test cluster beside its admin: each user's name with the names of its groups. */
  users?: Record<string, string[]>;
}

/** An API server with etcd, and kube-controller-manager if the options name controllers; no scheduler and no node. */
export interface TestCluster {
  server: string;
  /** A client with all rights. */
  admin: TestClusterClient;
  /** Returns a client that authenticates as one of the test users. */
  as(user: keyof typeof users): TestClusterClient;
  /** The CA of the server's certificate, as PEM. */
  ca: string;
  /** Returns the token of a user. */
  getToken(user: string): string;
  /**
   * Returns the audit annotations of requests that were answered, by their audit id. Requests that only read have none.
   */
  readAuditAnnotations(auditIds: Iterable<string>): Promise<Map<string, Record<string, string>>>;
  /** Restarts the API server with its data; `renewed` users get other tokens. */
  restart(renewed?: string[]): Promise<void>;
  /** Stops the test cluster and copies its data to a folder, from which another cluster can boot (option `store`). */
  stopAndCopyData(folder: string): Promise<void>;
  stop(): Promise<void>;
}

const users = { admin: ["system:masters"], jane: ["developers"], "system:node:n1": ["system:nodes"] } as const;

/** Boots a cluster in seconds, with its own ports, data and certificates; `stop` deletes everything. */
export const bootCluster = async (
  { apiserver, controllerManager, etcd }: ControlPlaneBinaries,
  options: TestClusterOptions = {},
): Promise<TestCluster> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-cluster-"));
  const [etcdPort, peerPort, port] = [await findFreePort(), await findFreePort(), await findFreePort()];
  const { ca } = await readOrCreateServerCertificate(folder, "127.0.0.1");
  const { renewTokens, getToken } = await openTokens(folder, { ...users, ...options.users });
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  await writeFile(join(folder, "sa.key"), privateKey.export({ type: "sec1", format: "pem" }), { mode: 0o600 });

  const data = join(folder, "data");
  if (options.store) await cp(options.store, data, { recursive: true });
  const etcdServer = startServer(etcd, [
    `--data-dir=${data}`,
    `--listen-client-urls=http://127.0.0.1:${etcdPort}`,
    `--advertise-client-urls=http://127.0.0.1:${etcdPort}`,
    `--listen-peer-urls=http://127.0.0.1:${peerPort}`,
    "--unsafe-no-fsync",
    "--log-level=error",
  ]);
  const auditLog = options.audit ? await openAuditLog(folder) : undefined;
  const start = (pluginsAddedByRestart: string[] = []) => {
    const flags = buildServerFlags(folder, etcdPort, port, options, pluginsAddedByRestart);
    return startServer(apiserver, [...flags, ...(auditLog?.flags ?? [])]);
  };

  let server = start();
  const url = `https://127.0.0.1:${port}`;
  const clients = Object.fromEntries(
    Object.keys(users).map((user) => [user, createTokenClient(url, ca, getToken(user))]),
  ) as Record<keyof typeof users, ReturnType<typeof createTokenClient>>;
  const restart = async (renewed: string[] = [], late = options.late?.enable) => {
    await server.stop();
    await renewTokens(renewed);
    server = start(late);
    await waitUntilReady(clients.admin.client, server);
  };
  let manager: RunningProgram | undefined;
  const end = async () => {
    for (const { close } of Object.values(clients)) close();
    await manager?.stop();
    await server.stop();
    await etcdServer.stop();
    await auditLog?.close();
  };
  const stop = async () => {
    await end();
    await rm(folder, { recursive: true, force: true });
  };
  const stopAndCopyData = async (copy: string) => {
    await end();
    await cp(data, copy, { recursive: true });
    await stop();
  };
  try {
    await waitUntilReady(clients.admin.client, server);
    if (options.late) {
      await options.late.fill((user) => clients[user].client);
      await restart();
    }
    if (options.controllers) {
      const kubeconfig = await writeAdminKubeconfig(folder, { server: url, ca, token: getToken("admin") });
      const controllers = `--controllers=${options.controllers.join(",")}`;
      manager = startServer(controllerManager, [kubeconfig, controllers, "--leader-elect=false", "--secure-port=0"]);
    }
  } catch (error) {
    await stop();
    throw error;
  }
  const as = (user: keyof typeof users) => clients[user].client;
  return {
    server: url,
    ca,
    admin: clients.admin.client,
    as,
    getToken,
    readAuditAnnotations: async (ids) => (await auditLog?.readAnnotations(ids)) ?? new Map(),
    restart: (renewed) => restart(renewed),
    stopAndCopyData,
    stop,
  };
};

/** Writes a kubeconfig, and returns the flag that names it. */
const writeAdminKubeconfig = async (
  folder: string,
  { server, ca, token }: Record<"server" | "ca" | "token", string>,
) => {
  const file = join(folder, "kubeconfig.json");
  const cluster = { server, "certificate-authority-data": Buffer.from(ca).toString("base64") };
  const config = {
    apiVersion: "v1",
    kind: "Config",
    "current-context": "test",
    clusters: [{ name: "test", cluster }],
    users: [{ name: "test", user: { token } }],
    contexts: [{ name: "test", context: { cluster: "test", user: "test" } }],
  };
  await writeFile(file, JSON.stringify(config), { mode: 0o600 });
  return `--kubeconfig=${file}`;
};

/** Writes an audit policy into a folder, and opens an audit log there. Requests that only read are not logged. */
const openAuditLog = async (folder: string) => {
  const [policy, file] = [join(folder, "audit.yaml"), join(folder, "audit.log")];
  const rules = [{ level: "None", verbs: ["get", "list", "watch"] }, { level: "Metadata" }];
  const omitStages = ["RequestReceived", "ResponseStarted"];
  await writeFile(policy, JSON.stringify({ apiVersion: "audit.k8s.io/v1", kind: "Policy", omitStages, rules }));
  const log = await open(file, "a+");
  const annotationsById = new Map<string, Record<string, string>>();
  let bytesRead = 0;
  const readNewLines = async () => {
    const { size } = await log.stat();
    const { buffer } = await log.read({ buffer: Buffer.alloc(size - bytesRead), position: bytesRead });
    const end = buffer.lastIndexOf("\n") + 1;
    bytesRead += end;
    for (const line of buffer.toString("utf8", 0, end).split("\n").filter(Boolean)) {
      const { auditID, annotations = {} } = JSON.parse(line);
      annotationsById.set(auditID, annotations);
    }
  };
  return {
    flags: [`--audit-policy-file=${policy}`, `--audit-log-path=${file}`],
    close: () => log.close(),
    readAnnotations: async (auditIds: Iterable<string>) => {
      const wanted = [...auditIds];
      const endTime = Date.now() + 60_000;
      while (!wanted.every((id) => annotationsById.has(id))) {
        if (Date.now() > endTime) throw new Error("the audit log of kube-apiserver is incomplete");
        await readNewLines();
        await wait(10);
      }
      return annotationsById;
    },
  };
};

/** Creates a token for every user of the test API server; `renewTokens` replaces those of some users. */
const openTokens = async (folder: string, groups: Record<string, readonly string[]>) => {
  const tokens = new Map<string, string>();
  const renewTokens = async (names: string[]) => {
    for (const user of names) tokens.set(user, randomBytes(16).toString("hex"));
    const lines = [...tokens].map(([user, token], index) => `${token},${user},${index},"${groups[user]?.join(",")}"`);
    await writeFile(join(folder, "tokens.csv"), `${lines.join("\n")}\n`, { mode: 0o600 });
  };
  await renewTokens(Object.keys(groups));
  return { renewTokens, getToken: (user: string) => tokens.get(user) ?? "" };
};

/** Returns kube-apiserver's flags. A restart can turn on `pluginsAddedByRestart`, besides the plugins in `enable`. */
const buildServerFlags = (
  folder: string,
  etcdPort: number,
  port: number,
  { rbac, enable = [], disable, flags = [] }: TestClusterOptions,
  pluginsAddedByRestart: string[],
) => [
  `--etcd-servers=http://127.0.0.1:${etcdPort}`,
  "--bind-address=127.0.0.1",
  `--secure-port=${port}`,
  `--tls-cert-file=${join(folder, "server.crt")}`,
  `--tls-private-key-file=${join(folder, "server.key")}`,
  `--token-auth-file=${join(folder, "tokens.csv")}`,
  `--service-account-key-file=${join(folder, "sa.key")}`,
  `--service-account-signing-key-file=${join(folder, "sa.key")}`,
  "--service-account-issuer=https://kubernetes.default.svc",
  "--service-cluster-ip-range=10.0.0.0/24",
  `--authorization-mode=${rbac ? "RBAC" : "AlwaysAllow"}`,
  ...buildPluginFlags([...enable, ...pluginsAddedByRestart], disable),
  ...flags,
];

/** Boots several clusters in parallel; if one of them fails, stops the others. */
export const bootClusters = async (
  binaries: ControlPlaneBinaries,
  options: readonly TestClusterOptions[],
): Promise<TestCluster[]> => {
  const booted = await Promise.allSettled(options.map((one) => bootCluster(binaries, one)));
  const running = booted.flatMap((one) => (one.status === "fulfilled" ? one.value : []));
  const failed = booted.find((one) => one.status === "rejected");
  if (!failed) return running;
  await Promise.all(running.map(({ stop }) => stop()));
  throw failed.reason;
};

/** Starts a program of the control plane, faster than usual: below 600 MiB, the program rarely collects garbage. */
const startServer = (program: string, args: string[]) =>
  startProgram(program, args, { GOGC: "1600", GOMEMLIMIT: "600MiB" });

/**
 * Returns kube-apiserver's flags for plugins. Unless `enable` has ServiceAccount, that plugin is off: no controller
 * creates the service account that the plugin adds to pods. kube-apiserver refuses a name in both flags.
 */
const buildPluginFlags = (enable: string[], disable: string[] = []) => {
  const disabled = ["ServiceAccount", ...disable].filter((plugin) => !enable.includes(plugin));
  return [
    ...(enable.length > 0 ? [`--enable-admission-plugins=${enable.join(",")}`] : []),
    ...(disabled.length > 0 ? [`--disable-admission-plugins=${disabled.join(",")}`] : []),
  ];
};

const createNamespaces = async (admin: TestClusterClient) => {
  for (const name of ["kube-system", "kube-public", "kube-node-lease", "default"])
    await admin({ method: "POST", path: "/api/v1/namespaces", body: { metadata: { name } } });
};

/** Waits until the API server is ready and the namespace `default` exists. */
const waitUntilReady = async (admin: TestClusterClient, server: RunningProgram) => {
  let hasEnded = false;
  server.ended.then(() => {
    hasEnded = true;
  });
  for (const endTime = Date.now() + 300_000; Date.now() < endTime && !hasEnded; await wait(100)) {
    const [health, namespace] = await Promise.all(
      ["/readyz", "/api/v1/namespaces/default"].map((path) => admin({ method: "GET", path }).catch(() => undefined)),
    );
    if (health?.code === 200 && namespace?.code === 200) return;
    // If the API server fails to create its own namespaces, it tries again only a minute later.
    if (health?.code === 200 && namespace?.code === 404) await createNamespaces(admin);
  }
  throw new Error(`kube-apiserver did not become ready: ${server.tail()}`);
};
