import { Failure } from "postern/failure";
import { toList, toMap } from "postern/json";
import { type HttpsRequest, type HttpsResponse, parseAnswer } from "postern/needs";
import { formatImage, parseImage } from "postern/objects/image";
import { canonicalizeQuantity } from "postern/objects/quantity";
import { findTokenPlace, tokenSettings } from "postern/service-settings";

export const usageHistorySettings = {
  /** `percentile` and `namespaceOnly` are the upstream plugin's flags; `prometheus` is Postern's own setting. */
  percentile: 90,
  namespaceOnly: true,
  prometheus: {
    url: "",
    ca: "",
    cpu: "container_cpu_usage_seconds_total",
    memory: "container_memory_working_set_bytes",
    ...tokenSettings,
  },
};

export type InitialResourcesSettings = typeof usageHistorySettings;

export type ResourceName = "cpu" | "memory";
type Ask = (request: HttpsRequest) => Promise<HttpsResponse>;

/** One of several queries about an image. If `namespace` is undefined, it covers all namespaces. */
interface QueryStage {
  days: number;
  onlySameTag: boolean;
  namespace: string | undefined;
}

/** If an answer has so many samples, no queries over more days, namespaces or tags are sent. */
const enoughSamples = 30;
/** The seconds for which an answer of Prometheus is cached: many, because a history of weeks changes slowly. */
const keepSeconds = 600;

/** Returns the queries to send, one after the other, until an answer has enough samples. */
const listStages = (namespace: string, namespaceOnly: boolean): QueryStage[] => {
  const scopes = namespaceOnly ? [namespace] : [namespace, undefined];
  return [
    ...scopes.flatMap((scope) => [7, 30].map((days) => ({ days, onlySameTag: true, namespace: scope }))),
    { days: 30, onlySameTag: false, namespace: scopes.at(-1) },
  ];
};

/** Queries the usage of a resource by an image; undefined for an invalid image, or if Prometheus has no samples. */
export const queryUsage = async (
  resource: ResourceName,
  image: string,
  namespace: string,
  { percentile, namespaceOnly, prometheus }: InitialResourcesSettings,
  ask: Ask,
): Promise<string | undefined> => {
  const bearer = findTokenPlace(prometheus);
  const connection = { ...(prometheus.ca && { ca: prometheus.ca }), ...(bearer && { bearer }) };
  let last: UsageEstimate = { samples: 0, usage: 0 };
  for (const stage of listStages(namespace, namespaceOnly)) {
    const query = buildQuery(buildSeries(resource, image, stage, prometheus), stage.days, percentile / 100);
    // There is no query for an image with an invalid name.
    if (query === undefined) return undefined;
    const url = new URL(prometheus.url);
    url.pathname = `${url.pathname.replace(/\/$/, "")}/api/v1/query`;
    url.searchParams.set("query", query);
    const keep = ({ status }: HttpsResponse) => (status === 200 ? keepSeconds : 0);
    last = parsePrometheusUsage(await ask({ url: url.href, ...connection, keep }));
    if (last.samples >= enoughSamples) break;
  }
  if (last.samples <= 0) return undefined;
  // CPU is rounded up to thousandths (10^6 nanos), memory to bytes (10^9 nanos).
  const [units, nanosPerUnit] = resource === "cpu" ? [last.usage * 1000, 10n ** 6n] : [last.usage, 10n ** 9n];
  return canonicalizeQuantity({ nanos: BigInt(Math.ceil(units)) * nanosPerUnit, notation: "decimal" });
};

/**
 * Builds a query for the percentile of the containers' percentiles, because PromQL can't compute the percentile of all
 * samples together. The answer has two series: `usage`, and the number of `samples`.
 */
const buildQuery = (series: string | undefined, days: number, quantile: number) => {
  if (series === undefined) return undefined;
  const samples = `${series}[${days}d:10m]`;
  const addLabel = (name: string, query: string) => `label_replace(${query}, "is", "${name}", "", "")`;
  const usage = `quantile(${quantile}, quantile_over_time(${quantile}, ${samples}))`;
  return `${addLabel("usage", usage)} or ${addLabel("samples", `sum(count_over_time(${samples}))`)}`;
};

/** Builds the selector of an image's series, such as `metric{image=~"nginx|docker\\.io/library/nginx:latest"}`. */
const buildSeries = (
  resource: ResourceName,
  image: string,
  { onlySameTag, namespace }: QueryStage,
  { cpu, memory }: InitialResourcesSettings["prometheus"],
) => {
  const parsed = parseImage(image);
  if (parsed === undefined) return undefined;
  // Container runtimes report full image names: with the registry and the default tag.
  const tag = parsed.tag ?? (parsed.digest ? undefined : "latest");
  const bare = { ...parsed, tag: undefined, digest: undefined };
  const names = onlySameTag ? [image, formatImage({ ...parsed, tag })] : [removeTag(image), formatImage(bare)];
  const pattern = [...new Set(names)].map(escapeRegex).join("|");
  const labelMatchers = [
    `image=~${JSON.stringify(onlySameTag ? pattern : `(?:${pattern})(?:[:@].*)?`)}`,
    ...(namespace === undefined ? [] : [`namespace=${JSON.stringify(namespace)}`]),
  ];
  const selector = `{${labelMatchers.join(",")}}`;
  return resource === "cpu" ? `rate(${cpu}${selector}[5m])` : `${memory}${selector}`;
};

/** Removes the tag and the digest of an image. A colon before the last slash belongs to the registry's port. */
const removeTag = (image: string) => {
  const [located = ""] = image.split("@");
  const colon = located.lastIndexOf(":");
  return colon > located.lastIndexOf("/") ? located.slice(0, colon) : located;
};

const escapeRegex = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** What Prometheus answers about the usage of a resource by an image. */
interface UsageEstimate {
  /** The number of samples that the usage is computed from. */
  samples: number;
  /** A percentile of the samples, in CPU cores or in bytes of memory. */
  usage: number;
}

/** Returns the used amount and the number of samples that an answer of Prometheus contains. */
export const parsePrometheusUsage = (answer: HttpsResponse): UsageEstimate => {
  const { status } = answer;
  const { status: answerStatus, data, error } = toMap(parseAnswer(answer));
  const series = toMap(data).result;
  if (status !== 200 || answerStatus !== "success" || !Array.isArray(series))
    throw new Failure(
      503,
      `Prometheus answers ${status}${typeof error === "string" ? `: ${error.slice(0, 200)}` : ""}`,
    );
  // buildQuery adds the label `is` to tell the two series apart.
  const findValue = (name: string) => {
    const foundSeries = series.find((element) => toMap(toMap(element).metric).is === name);
    const text = toList(toMap(foundSeries).value)[1];
    const number = typeof text === "string" ? Number(text) : 0;
    // Without samples, Prometheus answers NaN. CPU cores are later multiplied by 1000, and must still be exact then.
    return Number.isSafeInteger(Math.ceil(number * 1000)) && number > 0 ? number : 0;
  };
  return { samples: findValue("samples"), usage: findValue("usage") };
};
