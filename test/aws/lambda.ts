import { createHash, randomUUID } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { unzip } from "../../infra/zip.ts";
import { type Running, start } from "../runtime/runtime-api.ts";

// Lambda's own API, as strict as its documentation: revisions, hashes, updates that take a while, aliases that only take
// published versions. What is published really runs, under the client that Lambda runs it with.

type Json = Record<string, unknown>;

interface Configuration {
  code: Buffer;
  environment: Record<string, string>;
  description: string;
  revision: string;
  modified: string;
}

interface Alias {
  version: string;
  weights: Record<string, number>;
  revision: string;
}

interface Fn {
  latest: Configuration;
  /** Until when an update of the latest is under way. */
  busy: number;
  versions: Map<string, Configuration>;
  published: number;
  aliases: Map<string, Alias>;
}

/** What a call was about, for a test that counts or breaks them. */
export interface Heard {
  action: string;
  name: string;
  /** Whose access key it was. */
  caller: string | undefined;
}

export interface LambdaService {
  url: string;
  functions: Map<string, Fn>;
  heard: Heard[];
  /** For how many milliseconds an update is under way. */
  updating: number;
  /** Breaks a call before or after it is done, once for each that says so. */
  fault: ((heard: Heard, when: "before" | "after") => Fault | undefined) | undefined;
  /** Makes a function with one published version, which is live. */
  create(name: string, code: Buffer, environment: Record<string, string>): void;
  stop(): Promise<void>;
}

/** An error of Lambda's, or a connection that ends. */
export type Fault = { status: number; error: string } | "cut";

class Refusal extends Error {
  readonly status: number;
  readonly kind: string;
  constructor(status: number, kind: string, message: string) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

const region = "eu-west-1";
const arnOf = (name: string) => `arn:aws:lambda:${region}:123456789012:function:${name}`;
const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("base64");

export const openLambda = async (client: string): Promise<LambdaService> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-lambda-"));
  const functions = new Map<string, Fn>();
  const running = new Map<Configuration, Promise<Running>>();
  const found = (name: string): Fn => {
    const one = functions.get(name);
    if (!one) throw new Refusal(404, "ResourceNotFoundException", `Function not found: ${arnOf(name)}`);
    return one;
  };
  const configured = (name: string, qualifier = "$LATEST"): [string, Configuration] => {
    const one = found(name);
    const alias = one.aliases.get(qualifier);
    const version = alias?.version ?? qualifier;
    const configuration = version === "$LATEST" ? one.latest : one.versions.get(version);
    if (!configuration)
      throw new Refusal(404, "ResourceNotFoundException", `Function not found: ${arnOf(name)}:${qualifier}`);
    return [version, configuration];
  };
  const described = (name: string, version: string, { code, ...rest }: Configuration): Json => ({
    FunctionName: name,
    FunctionArn: version === "$LATEST" ? arnOf(name) : `${arnOf(name)}:${version}`,
    Runtime: "nodejs24.x",
    Handler: "index.handler",
    CodeSize: code.length,
    CodeSha256: sha256(code),
    Description: rest.description,
    Architectures: ["arm64"],
    Environment: { Variables: rest.environment },
    LastModified: rest.modified,
    RevisionId: rest.revision,
    State: "Active",
    LastUpdateStatus: version === "$LATEST" && found(name).busy > Date.now() ? "InProgress" : "Successful",
    Version: version,
  });
  const change = (
    name: string,
    { RevisionId }: Json,
    edit: (latest: Configuration) => Partial<Configuration>,
  ): Json => {
    const one = found(name);
    if (one.busy > Date.now())
      throw new Refusal(409, "ResourceConflictException", `An update is in progress for resource: ${arnOf(name)}`);
    expect(RevisionId, one.latest.revision);
    one.latest = { ...one.latest, ...edit(one.latest), ...stamped() };
    one.busy = Date.now() + service.updating;
    return described(name, "$LATEST", one.latest);
  };
  const expect = (given: unknown, revision: string) => {
    if (given !== undefined && given !== revision)
      throw new Refusal(412, "PreconditionFailedException", "The Revision Id provided does not match the latest one");
  };

  const actions: Record<string, (name: string, input: Json, query: URLSearchParams) => Json | Promise<Json>> = {
    ListFunctions: () => ({
      Functions: [...functions].map(([name, { latest }]) => described(name, "$LATEST", latest)),
    }),
    GetFunction: (name, _, query) => {
      const [version, configuration] = configured(name, query.get("Qualifier") ?? undefined);
      const location = `${url}/code/${encodeURIComponent(name)}/${version}`;
      return { Configuration: described(name, version, configuration), Code: { Location: location } };
    },
    UpdateFunctionCode: (name, input) =>
      change(name, input, () => ({ code: Buffer.from(String(input.ZipFile), "base64") })),
    UpdateFunctionConfiguration: (name, input) =>
      change(name, input, (latest) => ({
        environment: (Object(input.Environment).Variables as Record<string, string>) ?? latest.environment,
        description: typeof input.Description === "string" ? input.Description : latest.description,
      })),
    PublishVersion: (name, input) => {
      const one = found(name);
      if (one.busy > Date.now())
        throw new Refusal(409, "ResourceConflictException", `An update is in progress for resource: ${arnOf(name)}`);
      expect(input.RevisionId, one.latest.revision);
      if (input.CodeSha256 !== undefined && input.CodeSha256 !== sha256(one.latest.code))
        throw new Refusal(412, "PreconditionFailedException", "The CodeSha256 does not match that of the latest code");
      const last = one.versions.get(String(one.published));
      const isSame = last && sameAs(last, one.latest);
      if (!isSame) {
        one.published += 1;
        const description = typeof input.Description === "string" ? input.Description : one.latest.description;
        one.versions.set(String(one.published), { ...one.latest, description, ...stamped() });
      }
      const version = String(one.published);
      return described(name, version, configured(name, version)[1]);
    },
    ListVersionsByFunction: (name) => {
      const { latest, versions } = found(name);
      return {
        Versions: [["$LATEST", latest] as const, ...versions].map(([version, one]) => described(name, version, one)),
      };
    },
    GetAlias: (name, _, query) => {
      const alias = found(name).aliases.get(query.get("alias") ?? "");
      if (!alias) throw new Refusal(404, "ResourceNotFoundException", `Cannot find alias arn: ${arnOf(name)}`);
      return told(name, query.get("alias") ?? "", alias);
    },
    UpdateAlias: (name, input, query) => {
      const one = found(name);
      const alias = one.aliases.get(query.get("alias") ?? "");
      if (!alias) throw new Refusal(404, "ResourceNotFoundException", `Cannot find alias arn: ${arnOf(name)}`);
      expect(input.RevisionId, alias.revision);
      const version = String(input.FunctionVersion ?? alias.version);
      const weights = (Object(input.RoutingConfig).AdditionalVersionWeights as Record<string, number>) ?? alias.weights;
      for (const one of [version, ...Object.keys(weights)]) {
        if (!/^\d+$/.test(one)) throw new Refusal(400, "InvalidParameterValueException", `${one} is not a version`);
        configured(name, one);
      }
      if (version in weights)
        throw new Refusal(400, "InvalidParameterValueException", "The alias's own version can't have a weight");
      Object.assign(alias, { version, weights, revision: randomUUID() });
      return told(name, query.get("alias") ?? "", alias);
    },
  };
  const told = (name: string, alias: string, { version, weights, revision }: Alias): Json => ({
    AliasArn: `${arnOf(name)}:${alias}`,
    Name: alias,
    FunctionVersion: version,
    ...(Object.keys(weights).length > 0 && { RoutingConfig: { AdditionalVersionWeights: weights } }),
    RevisionId: revision,
  });

  /** One environment a version, started when somebody calls it. */
  const invoke = async (name: string, qualifier: string | null, event: string) => {
    const [version, configuration] = configured(name, qualifier ?? undefined);
    const one = running.get(configuration) ?? launched(name, version, configuration);
    running.set(configuration, one);
    const answer = await one
      .then((function_) => function_.invoke(JSON.parse(event)))
      .then(
        (payload) => ({ payload, fault: undefined }),
        (error: Error) => ({ payload: { errorMessage: error.message, errorType: "Error" }, fault: "Unhandled" }),
      );
    return { ...answer, version };
  };
  const launched = async (name: string, version: string, { code, environment, revision }: Configuration) => {
    const task = join(folder, revision);
    for (const [file, contents] of Object.entries(unzip(code) ?? {})) {
      await mkdir(dirname(join(task, file)), { recursive: true });
      await writeFile(join(task, file), contents);
    }
    return start(client, {
      ...environment,
      _HANDLER: "index.handler",
      LAMBDA_TASK_ROOT: task,
      AWS_REGION: region,
      AWS_LAMBDA_FUNCTION_NAME: name,
      AWS_LAMBDA_FUNCTION_VERSION: version,
      AWS_LAMBDA_FUNCTION_MEMORY_SIZE: "256",
      AWS_LAMBDA_LOG_GROUP_NAME: `/aws/lambda/${name}`,
      AWS_LAMBDA_LOG_STREAM_NAME: "stand-in",
    });
  };

  const service: Omit<LambdaService, "url" | "stop"> = {
    functions,
    heard: [],
    updating: 30,
    fault: undefined,
    create: (name, code, environment) => {
      const configuration = { code, environment, description: "first", ...stamped() };
      functions.set(name, {
        latest: configuration,
        busy: 0,
        versions: new Map([["1", { ...configuration, ...stamped() }]]),
        published: 1,
        aliases: new Map([["live", { version: "1", weights: {}, revision: randomUUID() }]]),
      });
    },
  };

  const server = createServer(async (request, response) => {
    const asked = new URL(request.url ?? "", "http://lambda");
    const [, stamp, , named = "", ...rest] = asked.pathname.split("/").map(decodeURIComponent);
    const body = await textOf(request);
    if (stamp === "code") {
      const [, , name = "", version = ""] = asked.pathname.split("/").map(decodeURIComponent);
      response.end(configured(name, version)[1].code);
      return;
    }
    const action = actionOf(request.method ?? "", named, rest);
    if (rest[0] === "aliases") asked.searchParams.set("alias", rest[1] ?? "");
    const [, caller] = /Credential=([^/]+)/.exec(request.headers.authorization ?? "") ?? [];
    const heard = { action, name: named, caller };
    service.heard.push(heard);
    const broken = (when: "before" | "after") => {
      const fault = service.fault?.(heard, when);
      if (fault === "cut") request.socket.destroy();
      else if (fault) throw new Refusal(fault.status, fault.error, "as the test wants it");
      return fault === "cut";
    };
    try {
      if (broken("before")) return;
      if (action === "Invoke") {
        const { payload, fault, version } = await invoke(named, asked.searchParams.get("Qualifier"), body);
        const headers = { "x-amz-executed-version": version, ...(fault && { "x-amz-function-error": fault }) };
        response.writeHead(200, headers).end(JSON.stringify(payload));
        return;
      }
      const answer = await actions[action]?.(named, body ? JSON.parse(body) : {}, asked.searchParams);
      if (!answer)
        throw new Refusal(404, "UnknownOperationException", `nothing answers ${request.method} ${request.url}`);
      if (broken("after")) return;
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
    } catch (error) {
      const { status = 500, kind = "ServiceException", message } = error as Refusal;
      response
        .writeHead(status, { "content-type": "application/json", "x-amzn-errortype": kind })
        .end(JSON.stringify({ Type: "User", message }));
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  // Listening on a port, it has one.
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return Object.assign(service, {
    url,
    stop: async () => {
      for (const one of running.values()) await one.then((function_) => function_.stop()).catch(() => {});
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await rm(folder, { recursive: true, force: true });
    },
  });
};

const stamped = () => ({ revision: randomUUID(), modified: new Date().toISOString() });

const sameAs = (one: Configuration, other: Configuration) =>
  one.code.equals(other.code) && JSON.stringify(one.environment) === JSON.stringify(other.environment);

const actionOf = (method: string, name: string, [what = "", which]: string[]): string => {
  if (name === "") return "ListFunctions";
  const known: Record<string, string> = {
    "GET ": "GetFunction",
    "PUT code": "UpdateFunctionCode",
    "PUT configuration": "UpdateFunctionConfiguration",
    "GET versions": "ListVersionsByFunction",
    "POST versions": "PublishVersion",
    "POST invocations": "Invoke",
    "GET aliases": which === undefined ? "ListAliases" : "GetAlias",
    "PUT aliases": "UpdateAlias",
  };
  return known[`${method} ${what}`] ?? `${method} ${what}`;
};

const textOf = async (request: IncomingMessage): Promise<string> => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
};
