import { isUtf8 } from "node:buffer";
import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import type { ServerCertificate } from "../../infra/keys/keys.ts";
import {
  type GatewayHandler,
  type GatewayRequest,
  type ImitatedApiGateway,
  openImitatedApiGateway,
} from "../../infra/serve/gateway.ts";
import { AwsError } from "./aws-service.ts";
import type { CloudWatch } from "./cloudwatch.ts";
import { type Lambda, parseFunctionName } from "./lambda.ts";
import type { Logs } from "./logs.ts";

// Stand-ins for API Gateway and function URLs. Each stack has one gateway on its own port, which serves the HTTP API
// and the function URLs of the stack.

/** A resource of a stack. */
export interface StackResource {
  type: string;
  physical: string;
  properties: Record<string, unknown>;
}

export interface Gateways {
  /** The base URL of the first stack, which is known before the stack is created. */
  baseUrl: string;
  /** Returns the URL of a stack's gateway. The first call for a stack opens the gateway. */
  openUrl(stack: string): Promise<string>;
  /** Makes a stack's gateway serve the stack's present resources. */
  serve(stack: string, resources: StackResource[]): void;
  close(stack: string): Promise<void>;
  /** The rules whose routes of an HTTP API are throttled: the gateway answers 429. */
  throttledRules: Set<string>;
  /** Stops all gateways. */
  stopAll(): Promise<void>;
  /** Starts the gateways again, at the same ports. */
  startAll(): Promise<void>;
}

interface StackGateway {
  url: string;
  port: number;
  stack: string | undefined;
  handlers: Map<string, GatewayHandler>;
  /**
   * The time at which each rule got its route. A new route answers 404 for a while. After its first other answer, the
   * time becomes 0, so that the route never answers 404 again.
   */
  routeTimes: Map<string, number>;
  gateway: ImitatedApiGateway | undefined;
}

const host = "127.0.0.1";

export const openGateways = async (
  certificate: ServerCertificate,
  lambda: Lambda,
  { metrics, logs }: { metrics: CloudWatch; logs: Logs },
): Promise<Gateways> => {
  const throttledRules = new Set<string>();
  const open = async (): Promise<StackGateway> => {
    const gateway = await openImitatedApiGateway(certificate, host, 0);
    return {
      url: gateway.url,
      port: Number(new URL(gateway.url).port),
      stack: undefined,
      handlers: new Map(),
      routeTimes: new Map(),
      gateway,
    };
  };
  const first = await open();
  const gateways = [first];
  const findGateway = (stack: string) => gateways.find((stackGateway) => stackGateway.stack === stack);
  const serveHandlers = (stackGateway: StackGateway, handlers: Map<string, GatewayHandler>) => {
    const now = Date.now();
    const routeTimes = new Map([...handlers.keys()].map((rule) => [rule, stackGateway.routeTimes.get(rule) ?? now]));
    stackGateway.routeTimes = routeTimes;
    const delayedHandlers = [...handlers].map(([rule, handler]): [string, GatewayHandler] => {
      const answer: GatewayHandler = async (request) => {
        if (Date.now() < (routeTimes.get(rule) ?? 0) + lambda.propagationMilliseconds) return toReply(404, "Not Found");
        routeTimes.set(rule, 0);
        return handler(request);
      };
      return [rule, answer];
    });
    stackGateway.handlers = new Map(delayedHandlers);
    stackGateway.gateway?.serve(stackGateway.handlers);
  };
  const closeGateway = async (stackGateway: StackGateway) => {
    const { gateway } = stackGateway;
    stackGateway.gateway = undefined;
    await gateway?.close();
  };

  return {
    baseUrl: first.url,
    throttledRules,
    openUrl: async (stack) => {
      const unused = gateways.find((stackGateway) => stackGateway.stack === undefined);
      const existing = findGateway(stack) ?? unused;
      const stackGateway = existing ?? (await open());
      if (!existing) gateways.push(stackGateway);
      stackGateway.stack = stack;
      return stackGateway.url;
    },
    serve: (stack, resources) => {
      const stackGateway = findGateway(stack);
      if (stackGateway)
        serveHandlers(stackGateway, createHandlers(resources, { lambda, metrics, logs, throttledRules }));
    },
    close: async (stack) => {
      const stackGateway = findGateway(stack);
      if (!stackGateway) return;
      serveHandlers(stackGateway, new Map());
      stackGateway.stack = undefined;
    },
    stopAll: async () => {
      await Promise.all(gateways.map(closeGateway));
    },
    startAll: async () => {
      for (const stackGateway of gateways) {
        stackGateway.gateway ??= await openImitatedApiGateway(certificate, host, stackGateway.port);
        stackGateway.gateway.serve(stackGateway.handlers);
      }
    },
  };
};

/**
 * The functions that the gateways call, the metrics that they count, the logs that they write, and the rules for whose
 * routes they answer 429.
 */
interface Backends {
  lambda: Lambda;
  metrics: CloudWatch;
  logs: Logs;
  throttledRules: Set<string>;
}

/** Returns a handler for each rule that has a route or a function URL among a stack's resources. */
const createHandlers = (
  resources: StackResource[],
  { lambda, metrics, logs, throttledRules }: Backends,
): Map<string, GatewayHandler> => {
  const selectResources = (type: string) => resources.filter((resource) => resource.type === `AWS::${type}`);
  const integrations = new Map(
    selectResources("ApiGatewayV2::Integration").map((resource) => [resource.physical, resource.properties]),
  );
  const handlers = new Map<string, GatewayHandler>();
  /**
   * Counts an answer of the gateway in its metrics. Also writes a line to the access log, in the format that the stage
   * states, and applies the metric filters of the access log.
   */
  const log = ({ statusCode, isFromFunction }: Reply, routeKey: string) => {
    for (const { physical } of selectResources("ApiGatewayV2::Api")) {
      const datum = { namespace: "AWS/ApiGateway", dimensions: { ApiId: physical }, time: Date.now() };
      metrics.record({ ...datum, metric: "Count", value: 1 });
      for (const digit of [4, 5])
        metrics.record({ ...datum, metric: `${digit}xx`, value: Math.floor(statusCode / 100) === digit ? 1 : 0 });
    }
    const status = String(statusCode);
    const context: Record<string, string> = {
      requestId: randomUUID(),
      routeKey,
      status,
      "integration.status": isFromFunction ? status : "-",
    };
    for (const { properties } of selectResources("ApiGatewayV2::Stage")) {
      const { DestinationArn, Format } = Object(properties.AccessLogSettings);
      const line = String(Format).replace(/\$context\.([\w.]+)/g, (_, name: string) => context[name] ?? "-");
      const [, group = ""] = /:log-group:(.*):\*$/.exec(String(DestinationArn)) ?? [];
      logs.write(group, "stand-in", line);
      for (const filter of selectResources("Logs::MetricFilter"))
        if (filter.properties.LogGroupName === group) metrics.recordByFilter(line, filter.properties);
    }
  };
  for (const { properties } of selectResources("ApiGatewayV2::Route")) {
    const [, target = ""] = String(properties.Target).split("/");
    const { IntegrationUri, TimeoutInMillis = 30_000 } = integrations.get(target) ?? {};
    // A route key is `POST /{cluster}/RULE/{phase+}`.
    const [, method = "", rule = ""] =
      /^(\w+) \/\{cluster\}\/([^/]+)\/\{phase\+\}$/.exec(String(properties.RouteKey)) ?? [];
    const { name, qualifier } = parseFunctionName(String(IntegrationUri));
    const apiInArn = `:${properties.ApiId}/`;
    /** Reports whether the function's policy lets the API invoke the function. */
    const isPermitted = () =>
      lambda.isPermitted(name, qualifier, (statement) => {
        const isGateway = Object(statement.Principal).Service === "apigateway.amazonaws.com";
        if (!isGateway || statement.Action !== "lambda:InvokeFunction") return false;
        const sourceArn = Object(Object(statement.Condition).ArnLike)["AWS:SourceArn"];
        return sourceArn === undefined || String(sourceArn).includes(apiInArn);
      });
    const [settings] = selectResources("ApiGatewayV2::Stage").map((stage) =>
      Object(stage.properties.DefaultRouteSettings),
    );
    const isWithinLimit = createRouteLimit(
      Number(settings?.ThrottlingRateLimit),
      Number(settings?.ThrottlingBurstLimit),
    );
    handlers.set(rule, async (request) => {
      const isRouted = request.method === method && request.path.split("/").length >= 4;
      const getAnswer = async (): Promise<Reply> => {
        if (!isRouted) return toReply(404, "Not Found");
        if (throttledRules.has(rule) || !isWithinLimit()) return toReply(429, "Too Many Requests");
        if (!isPermitted()) return toReply(500, "Internal Server Error");
        return callFunction(lambda, name, qualifier, buildGatewayEvent(request, rule), Number(TimeoutInMillis));
      };
      const answer = await getAnswer();
      log(answer, isRouted ? String(properties.RouteKey) : "-");
      return answer;
    });
  }
  for (const { properties } of selectResources("Lambda::Url")) {
    const { name } = parseFunctionName(String(properties.TargetFunctionArn));
    const qualifier = typeof properties.Qualifier === "string" ? properties.Qualifier : undefined;
    // A function URL accepts any path. The stand-in accepts only Postern's paths: `/CLUSTER/RULE/PHASE`.
    // A function whose name is a shortened one has the rule's name in POSTERN_RULE.
    const { POSTERN_STAGE, POSTERN_RULE } = lambda.functions.get(name)?.latest.environment ?? {};
    const rule = POSTERN_RULE ?? name.slice(`postern-${POSTERN_STAGE}-`.length);
    const isPermitted = () =>
      ["lambda:InvokeFunctionUrl", "lambda:InvokeFunction"].every((action) =>
        lambda.isPermitted(name, qualifier, (statement) => statement.Action === action && statement.Principal === "*"),
      );
    handlers.set(rule, async (request) => {
      const answer = isPermitted()
        ? await callFunction(lambda, name, qualifier, buildGatewayEvent(request, rule), 900_000, 429)
        : { ...toReply(403, ""), body: JSON.stringify({ Message: "Forbidden" }) };
      const metric = { 4: "Url4xxCount", 5: "Url5xxCount" }[Math.floor(answer.statusCode / 100)];
      const datum = { namespace: "AWS/Lambda", dimensions: { FunctionName: name }, value: 1, time: Date.now() };
      if (metric !== undefined) metrics.record({ ...datum, metric });
      return answer;
    });
  }
  return handlers;
};

/** Builds the event of an HTTP API in the payload format 2.0. A body that isn't UTF-8 is encoded in base64. */
export const buildGatewayEvent = ({ method, path, query, headers, body }: GatewayRequest, rule: string) => {
  const routeKey = `POST /{cluster}/${rule}/{phase+}`;
  const isText = isUtf8(body);
  const now = Date.now();
  return {
    version: "2.0",
    routeKey,
    rawPath: path,
    rawQueryString: query,
    headers,
    ...(query && { queryStringParameters: Object.fromEntries(new URLSearchParams(query)) }),
    requestContext: {
      accountId: "anonymous",
      apiId: "local",
      domainName: headers.host ?? "",
      domainPrefix: "local",
      http: { method, path, protocol: "HTTP/1.1", sourceIp: "127.0.0.1", userAgent: headers["user-agent"] ?? "" },
      requestId: randomUUID(),
      routeKey,
      stage: "$default",
      time: new Date(now).toUTCString(),
      timeEpoch: now,
    },
    body: body.toString(isText ? "utf8" : "base64"),
    isBase64Encoded: !isText,
  };
};

/**
 * Returns a function that is called for each request, and reports whether the request is within the limit. Each request
 * takes a token from a bucket, which has at most `atOnce` tokens and gets `perSecond` new tokens a second.
 */
const createRouteLimit = (perSecond: number, atOnce: number) => {
  let tokens = atOnce;
  let last = Date.now();
  return (): boolean => {
    const now = Date.now();
    tokens = Math.min(atOnce, tokens + ((now - last) / 1000) * perSecond);
    last = now;
    if (tokens < 1) return false;
    tokens -= 1;
    return true;
  };
};

/** Returns a function's answer as a gateway does; `throttledStatus` is the status for a throttled call. */
const callFunction = async (
  lambda: Lambda,
  name: string,
  qualifier: string | undefined,
  event: unknown,
  timeout: number,
  throttledStatus = 503,
): Promise<Reply> => {
  const timer = new AbortController();
  const invocation = lambda.invoke(name, qualifier, event).catch((error: unknown) => {
    if (error instanceof AwsError) return error;
    throw error;
  });
  const timeIsUp = wait(timeout, undefined, { signal: timer.signal, ref: false });
  const answer = await Promise.race([invocation, timeIsUp]).finally(() => timer.abort());
  if (answer === undefined) return toReply(503, "Service Unavailable");
  if (answer instanceof AwsError)
    return answer.status === 429
      ? toReply(throttledStatus, "Service Unavailable")
      : toReply(500, "Internal Server Error");
  if (answer.fault !== undefined) return toReply(502, "Internal Server Error");
  const { statusCode, headers = {}, body = "", isBase64Encoded } = Object(answer.payload);
  if (typeof statusCode !== "number") return toReply(502, "Internal Server Error");
  const decodedBody = isBase64Encoded ? Buffer.from(body, "base64").toString() : body;
  return { statusCode, headers, body: decodedBody, isFromFunction: true };
};

interface Reply {
  statusCode: number;
  headers: Record<string, string>;
  body: string;
  /** True if the function itself answered. */
  isFromFunction?: boolean;
}

const toReply = (statusCode: number, message: string): Reply => {
  return { statusCode, headers: { "content-type": "application/json" }, body: JSON.stringify({ message }) };
};
