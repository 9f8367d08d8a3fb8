import { Failure } from "postern/failure";
import type { Container, Pod } from "postern/kubernetes/core/v1";
import { https } from "postern/needs";
import { listContainers, listContainersInCel } from "postern/objects/pod";
import { rule } from "postern/rule";
import { findServiceFault, findTokenPlace } from "postern/service-settings";
import { type InitialResourcesSettings, queryUsage, type ResourceName, usageHistorySettings } from "./usage-history.ts";

const annotation = "kubernetes.io/initial-resources";

/** The maximum number of a pod's images for which Prometheus is queried. */
const mostImages = 10;

const containers = listContainersInCel("object", ["initContainers", "containers"]);

export default rule({
  summary: "Requests as much CPU and memory for containers as other containers of the same image used before.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
  matchConditions: {
    // The condition is true for a pod with more than 50 containers: their check would exceed the API server's cost
    // limit and fail, so the rule itself checks large pods.
    "some-container-says-nothing": `size(${containers}) > 50 || ${containers}.exists(c, ["cpu", "memory"].exists(r,
      !(r in c.?resources.?requests.orValue({})) && !(r in c.?resources.?limits.orValue({}))))`,
  },
  timeoutSeconds: 5,
  settings: usageHistorySettings,
  checkSettings({ percentile, prometheus: { cpu, memory, ...service } }) {
    const serviceFault = findServiceFault(service, "prometheus");
    if (serviceFault !== undefined) return serviceFault;
    if (percentile < 0 || percentile > 100) return `must have a percentile from 0 to 100, not ${percentile}`;
    const wrong = [cpu, memory].find((metric) => !/^[a-zA-Z_:][a-zA-Z0-9_:]*$/.test(metric));
    if (wrong !== undefined)
      return `must have the name of a metric for cpu and for memory, not ${JSON.stringify(wrong)}`;
  },
  needs: { ask: https(({ prometheus }: InitialResourcesSettings) => findTokenPlace(prometheus)) },

  async mutate(pod: Pod, { request, settings, ask }) {
    const incomplete = listIncompleteContainers(pod);
    const faults = new Set<string>();
    const usages = await queryUsages(incomplete, (resource, image) =>
      queryUsage(resource, image, request.namespace ?? "", settings, ask).catch((error) => {
        if (!(error instanceof Failure)) throw error;
        faults.add(error.message);
        return undefined;
      }),
    );

    const descriptions = incomplete.flatMap(({ container, missing, kind, image }) => {
      const found = missing.flatMap((resource) => {
        const amount = usages.get(`${resource} ${image}`);
        return amount ? [[resource, amount] as const] : [];
      });
      if (found.length === 0) return [];
      const { requests } = container.resources ?? {};
      container.resources = { ...container.resources, requests: { ...requests, ...Object.fromEntries(found) } };
      return [`${found.map(([resource]) => resource).join(", ")} request for ${kind} ${container.name ?? ""}`];
    });
    if (descriptions.length > 0) {
      const text = `Initial Resources plugin set: ${descriptions.join("; ")}`;
      pod.metadata = { ...pod.metadata, annotations: { ...pod.metadata?.annotations, [annotation]: text } };
    }
    if (faults.size > 0) return { audit: { "not-answered": [...faults].join("; ") } };
  },
});

const resources = ["cpu", "memory"] as const;

/** Returns the containers that set neither a request nor a limit of cpu or of memory, with the missing resources. */
const listIncompleteContainers = (pod: Pod) =>
  listContainers(pod, ["initContainers", "containers"]).flatMap(({ container, path }) => {
    const missing = listMissingResources(container, pod);
    const kind = path.startsWith("spec.initContainers") ? "init container" : "container";
    return missing.length > 0 && container.image ? [{ container, missing, kind, image: container.image }] : [];
  });

/** Queries the usage of at most `mostImages` images. Returns the amounts by resource and image, such as `cpu nginx`. */
const queryUsages = async (
  incomplete: ReturnType<typeof listIncompleteContainers>,
  findUsage: (resource: ResourceName, image: string) => Promise<string | undefined>,
) => {
  const images = [...new Set(incomplete.map(({ image }) => image))].slice(0, mostImages);
  const wanted = new Set(incomplete.flatMap(({ image, missing }) => missing.map((resource) => `${resource} ${image}`)));
  const queries = images.flatMap((image) =>
    resources.map(async (resource) => {
      const key = `${resource} ${image}`;
      return [key, wanted.has(key) ? await findUsage(resource, image) : undefined] as const;
    }),
  );
  return new Map(await Promise.all(queries));
};

const listMissingResources = (container: Pick<Container, "resources">, pod: Pod): ResourceName[] =>
  resources.filter((resource) =>
    [container.resources, pod.spec?.resources].every(
      (stated) => !(resource in (stated?.requests ?? {})) && !(resource in (stated?.limits ?? {})),
    ),
  );
