import { Failure } from "postern/failure";
import { type HttpsRequest, type HttpsResponse, parseAnswer } from "postern/needs";
import { fullName, parseImage } from "postern/objects/image";
import { canonical } from "postern/objects/quantity";
import { tokenOf, tokenSettings } from "postern/service-settings";

export const settings = {
  /** `percentile` and `namespaceOnly` are upstream's flags; the data source is Postern's. */
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

export type Settings = typeof settings;

export type Resource = "cpu" | "memory";
type Ask = (request: HttpsRequest) => Promise<HttpsResponse>;

/** An undefined namespace means all namespaces. */
interface Stage {
  days: number;
  isSameTag: boolean;
  namespace: string | undefined;
}

/** With fewer samples, the next stage is queried. */
const enough = 30;
/** Answers are cached because weeks of history change slowly. */
const keptSeconds = 600;

const listStages = (namespace: string, namespaceOnly: boolean): Stage[] => {
  const scopes = namespaceOnly ? [namespace] : [namespace, undefined];
  return [
    ...scopes.flatMap((scope) => [7, 30].map((days) => ({ days, isSameTag: true, namespace: scope }))),
    { days: 30, isSameTag: false, namespace: scopes.at(-1) },
  ];
};

export const usageOf = async (
  resource: Resource,
  image: string,
  namespace: string,
  { percentile, namespaceOnly, prometheus }: Settings,
  ask: Ask,
): Promise<string | undefined> => {
  const bearer = tokenOf(prometheus);
  const known = { ...(prometheus.ca && { ca: prometheus.ca }), ...(bearer && { bearer }) };
  let last: Found = { samples: 0, usage: 0 };
  for (const stage of listStages(namespace, namespaceOnly)) {
    const query = queryFor(seriesOf(resource, image, stage, prometheus), stage.days, percentile / 100);
    if (query === undefined) return undefined;
    const url = new URL(prometheus.url);
    url.pathname = `${url.pathname.replace(/\/$/, "")}/api/v1/query`;
    url.searchParams.set("query", query);
    const keep = ({ status }: HttpsResponse) => (status === 200 ? keptSeconds : 0);
    last = readAnswer(await ask({ url: url.href, ...known, keep }));
    if (last.samples >= enough) break;
  }
  if (last.samples <= 0) return undefined;
  const [units, nanos] = resource === "cpu" ? [last.usage * 1000, 10n ** 6n] : [last.usage, 10n ** 9n];
  return canonical({ nanos: BigInt(Math.ceil(units)) * nanos, notation: "decimal" });
};

/** Takes the percentile of each container and then of these: PromQL has no percentile of all samples together. */
const queryFor = (series: string | undefined, days: number, quantile: number) => {
  if (series === undefined) return undefined;
  const samples = `${series}[${days}d:10m]`;
  const named = (what: string, of: string) => `label_replace(${of}, "is", "${what}", "", "")`;
  const usage = `quantile(${quantile}, quantile_over_time(${quantile}, ${samples}))`;
  return `${named("usage", usage)} or ${named("samples", `sum(count_over_time(${samples}))`)}`;
};

const seriesOf = (
  resource: Resource,
  image: string,
  { isSameTag, namespace }: Stage,
  { cpu, memory }: Settings["prometheus"],
) => {
  const parsed = parseImage(image);
  if (parsed === undefined) return undefined;
  // Runtimes report full names: with the registry and the default tag.
  const tag = parsed.tag ?? (parsed.digest ? undefined : "latest");
  const bare = { ...parsed, tag: undefined, digest: undefined };
  const names = isSameTag ? [image, fullName({ ...parsed, tag })] : [untagged(image), fullName(bare)];
  const pattern = [...new Set(names)].map(escaped).join("|");
  const chosen = [
    `image=~${JSON.stringify(isSameTag ? pattern : `(?:${pattern})(?:[:@].*)?`)}`,
    ...(namespace === undefined ? [] : [`namespace=${JSON.stringify(namespace)}`]),
  ];
  const selector = `{${chosen.join(",")}}`;
  return resource === "cpu" ? `rate(${cpu}${selector}[5m])` : `${memory}${selector}`;
};

const untagged = (image: string) => {
  const [located = ""] = image.split("@");
  const colon = located.lastIndexOf(":");
  return colon > located.lastIndexOf("/") ? located.slice(0, colon) : located;
};

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

interface Found {
  samples: number;
  usage: number;
}

export const readAnswer = (answer: HttpsResponse): Found => {
  const { status } = answer;
  const { status: said, data, error } = Object(parseAnswer(answer));
  const series: unknown = Object(data).result;
  if (status !== 200 || said !== "success" || !Array.isArray(series))
    throw new Failure(
      503,
      `Prometheus answers ${status}${typeof error === "string" ? `: ${error.slice(0, 200)}` : ""}`,
    );
  const value = (what: string) => {
    const found = series.find((one) => Object(Object(one).metric).is === what);
    const text: unknown = Object(found?.value)[1];
    const number = typeof text === "string" ? Number(text) : 0;
    // Without samples, the percentile is NaN.
    return Number.isSafeInteger(Math.ceil(number * 1000)) && number > 0 ? number : 0;
  };
  return { samples: value("samples"), usage: value("usage") };
};
