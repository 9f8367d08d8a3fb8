import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { stringify } from "yaml";
import { isMap, type JsonMap, toList, toMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { buildKindIndex } from "../../infra/apiserver/kinds/kinds.ts";
import { generateFaultyObject, type Path } from "../cluster/faulty-objects.ts";
import { createSender } from "../cluster/kubernetes-module.ts";
import type { ControlPlaneBinaries } from "../control-plane/binaries.ts";
import type { TestClusterClient } from "../control-plane/client.ts";
import { bootCluster } from "../control-plane/cluster.ts";
import { readValidObjects } from "../valid-objects.ts";
import type { findValidators } from "./peers/validators.ts";

// Compares `postern check`, kubectl-validate and kubeconform: how many files does each tool find among those that a new
// API server refuses?

/** The faulty files that one tool found, and the time and memory that it used. */
export interface ValidatorRow {
  name: string;
  /** The number of files that both the API server and the tool refuse. */
  found: number;
  /** The number of files that only the tool refuses. */
  wrong: number;
  /** Seconds of CPU time of all threads. */
  cpu: number;
  /** Seconds until the tool ended. */
  wall: number;
  /** The peak memory, in bytes. */
  memory: number;
}

export interface ValidatorMeasurement {
  kubernetes: string;
  seed: number;
  /** The number of generated files, each with one object. Most of the objects have faults. */
  files: number;
  /** The number of files that the API server refuses. */
  refusedByApiServer: number;
  rows: ValidatorRow[];
}

const checkProgram = fileURLToPath(new URL("../../infra/main.ts", import.meta.url));

/**
 * Kinds that change what admission does with other objects. The files don't have them: check would evaluate later files
 * as if the API server had stored such an object, but the API server gets only dry runs.
 */
const influentialKinds = [
  ...["IngressClass", "LimitRange", "Namespace", "PriorityClass", "ResourceQuota"],
  ...["RuntimeClass", "StorageClass"],
];

type Validators = Awaited<ReturnType<typeof findValidators>>;

/** Writes generated manifests, and measures which tools find their faults. `validators` are the tools beside check. */
export const compareValidators = async (
  binaries: ControlPlaneBinaries,
  validators: Validators,
  folder: string,
  { files, seed }: { files: number; seed: number },
): Promise<ValidatorMeasurement> => {
  const [manifests, schemas, workFolder] = [join(folder, "faulty"), join(folder, "schemas"), join(folder, "own")];
  const cluster = await bootCluster(binaries, { flags: ["--allow-privileged=true"] });
  const refused = new Set<string>();
  try {
    for (const path of [manifests, schemas, workFolder]) await mkdir(path);
    // Only objects whose name doesn't matter: each file gets a unique name, so that no object updates another one.
    const valid = readValidObjects().filter(({ metadata }) => /^valid-\d+$/.test(metadata?.name ?? ""));
    const kinds = buildKindIndex(valid);
    const served = valid.filter(
      ({ apiVersion = "", kind = "" }) =>
        kinds.of(apiVersion, kind)?.isServedByDefault && !influentialKinds.includes(kind),
    );
    const { send } = createSender(cluster.admin, kinds);
    // check assumes that the RuntimeClass that a Pod names exists. The API server refuses Pods without it.
    const runtime = { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass", metadata: { name: "a" }, handler: "a" };
    if ((await send({ verb: "create", object: runtime }, "")).code !== 201)
      throw new Error("RuntimeClass a is refused");
    const drawn = fc.sample(generateFaultyObject(served, isChanged), { numRuns: files, seed });
    for (const [index, faulty] of drawn.entries()) {
      const object = renameObject(faulty.object, index);
      const file = `${String(index).padStart(5, "0")}.yaml`;
      // The tools read YAML 1.1.
      await writeFile(join(manifests, file), stringify(object, { version: "1.1" }));
      if ((await send({ verb: "create", object })).code >= 300) refused.add(file);
    }
    await writeSchemas(cluster.admin, schemas);
  } finally {
    await cluster.stop();
  }
  /** Runs a tool. `listDenied` returns the files that the tool refuses by its output. */
  const measure = async (name: string, words: readonly string[], listDenied: (output: string) => string[]) => {
    const { output, ...usage } = await runMeasured(words, workFolder);
    const denied = new Set(listDenied(output).map((file) => basename(file)));
    const found = denied.intersection(refused).size;
    return { name, found, wrong: denied.size - found, ...usage };
  };
  const config = join(workFolder, "postern.yaml");
  await writeFile(config, "rules: {}\n");
  const rows = [
    await measure(
      "postern check",
      [
        ...[process.execPath, checkProgram, "check", manifests],
        ...["--config", config, "--kubernetes", binaries.minor, "-o", "json"],
      ],
      (output) => {
        const { objects, faults } = JSON.parse(output);
        return [...objects.filter(isDenied), ...faults].map(({ file }: { file: string }) => file);
      },
    ),
  ];
  if (validators !== undefined)
    rows.push(
      await measure(
        "kubectl-validate",
        [validators.kubectlValidate, manifests, "--local-schemas", schemas, "-o", "json"],
        (output) =>
          Object.entries(JSON.parse(output)).flatMap(([file, results]) =>
            toList(results).every((result) => toMap(result).status === "Success") ? [] : [file],
          ),
      ),
      await measure(
        "kubeconform -strict",
        [
          ...[validators.kubeconform, "-strict", "-output", "json", "-schema-location"],
          ...[`${schemas}/kinds/{{ .ResourceKind }}{{ .KindSuffix }}.json`, manifests],
        ],
        (output) => JSON.parse(output).resources.map(({ filename }: { filename: string }) => filename),
      ),
    );
  return { kubernetes: binaries.version, seed, files, refusedByApiServer: refused.size, rows };
};

/** Gives an object a unique name. */
const renameObject = (object: KubernetesObject, index: number): KubernetesObject =>
  isMap(object.metadata) ? { ...object, metadata: { ...object.metadata, name: `valid-${index}` } } : object;

const isChanged = (path: Path) => path.join(".") !== "metadata.name";

/** Reports whether check denies the object of a file. Denied Pods that a controller would create don't count. */
const isDenied = ({ verdict, madeBy }: { verdict: string; madeBy?: string }) =>
  verdict === "denied" && madeBy === undefined;

/** Runs a program to its end, and reads its CPU time and memory from /proc while it runs. */
const runMeasured = async ([file = "", ...words]: readonly string[], cwd: string) => {
  const started = performance.now();
  const env = { ...process.env, NODE_OPTIONS: "", KUBECONFIG: "/dev/null" };
  const child = spawn(file, words, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
  const outputs = Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
  let [cpu, memory] = [0, 0];
  const read = async () => {
    const [stat = "", status = ""] = await Promise.all(
      ["stat", "status"].map((name) => readFile(`/proc/${child.pid}/${name}`, "utf8").catch(() => "")),
    );
    // /proc/PID/stat is `PID (NAME) STATE …`; utime and stime are the words 11 and 12 after the name.
    const [user = 0, system = 0] = stat.split(") ")[1]?.split(" ").slice(11, 13).map(Number) ?? [];
    // A clock tick is a hundredth of a second on Linux.
    cpu = Math.max(cpu, (user + system) / 100);
    memory = Math.max(memory, Number(/^VmHWM:\s+(\d+)/m.exec(status)?.[1] ?? 0) * 1024);
  };
  while (child.exitCode === null && child.signalCode === null) {
    await read();
    await wait(5);
  }
  const [output, errors] = await outputs;
  if (output === "") throw new Error(`${file} ended: ${errors.slice(-2000)}`);
  return { output, cpu, memory, wall: (performance.now() - started) / 1000 };
};

/** Writes the API server's OpenAPI documents for kubectl-validate, and for kubeconform a JSON schema for each kind. */
const writeSchemas = async (admin: TestClusterClient, folder: string): Promise<void> => {
  await mkdir(join(folder, "kinds"));
  const read = async (path: string) => (await admin({ method: "GET", path })).body;
  const { paths } = await read("/openapi/v3");
  for (const [path, { serverRelativeURL }] of Object.entries(paths as Record<string, { serverRelativeURL: string }>)) {
    // Matches api/v1 and apis/apps/v1.
    const [, parent = "", version = ""] = /^(apis?(?:\/[^/]+)?)\/(v\d\w*)$/.exec(path) ?? [];
    if (version === "") continue;
    const document = await read(serverRelativeURL);
    await mkdir(join(folder, parent), { recursive: true });
    await writeFile(join(folder, parent, `${version}.json`), JSON.stringify(document));
    const { schemas } = document.components as { schemas: Record<string, JsonMap> };
    for (const [name, schema] of Object.entries(schemas))
      for (const { group, kind } of (schema["x-kubernetes-group-version-kind"] ?? []) as {
        group: string;
        kind: string;
      }[]) {
        const groupPart = group === "" ? "" : `-${group.split(".")[0]}`;
        const file = `${kind}${groupPart}-${version}.json`.toLowerCase();
        await writeFile(join(folder, "kinds", file), JSON.stringify(toStandaloneSchema(name, schemas)));
      }
  }
};

/**
 * Returns a schema with the schemas that it uses. As in kubeconform's own schemas, unknown members are refused, and a
 * member that isn't required may be null.
 */
const toStandaloneSchema = (name: string, schemas: Record<string, JsonMap>): object => {
  const usedSchemas: Record<string, unknown> = {};
  const convert = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(convert);
    if (!isMap(value)) return value;
    const { $ref, properties, ...rest } = value;
    if (typeof $ref === "string") return { $ref: use($ref.split("/").at(-1) ?? "") };
    const converted = Object.fromEntries(Object.entries(rest).map(([key, member]) => [key, convert(member)]));
    if (!isMap(properties)) return converted;
    const members = Object.entries(properties).map(([key, member]) => {
      const schema = convert(member) as JsonMap;
      const isOptional = !toList(value.required).includes(key) && typeof schema.type === "string";
      return [key, isOptional ? { ...schema, type: [schema.type, "null"] } : schema];
    });
    return { additionalProperties: false, ...converted, properties: Object.fromEntries(members) };
  };
  const use = (wanted: string): string => {
    if (!Object.hasOwn(usedSchemas, wanted)) {
      usedSchemas[wanted] = {};
      usedSchemas[wanted] = convert(schemas[wanted]);
    }
    return `#/definitions/${wanted}`;
  };
  return { $ref: use(name), definitions: usedSchemas };
};
