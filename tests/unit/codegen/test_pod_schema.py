from typing import Any

from tranche_codegen.pod_schema import template_schema, volume_schema

CORE = "io.k8s.api.core.v1."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def ref(name: str, **more: Any) -> dict[str, Any]:
    return {"description": "text", "allOf": [{"$ref": f"#/components/schemas/{name}"}], **more}


def listing(name: str, *keys: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "array", "items": {"$ref": f"#/components/schemas/{CORE}{name}"}}
    merge = {"x-kubernetes-patch-merge-key": keys[0], "x-kubernetes-patch-strategy": "merge"}
    return {**found, **merge, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def thing(*required: str, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": "text", "type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


TEXT = {"description": "text", "type": "string", "default": ""}
OPENAPI = {
    "components": {
        "schemas": {
            CORE + "PodTemplateSpec": thing(metadata=ref(META + "ObjectMeta"), spec=ref(CORE + "PodSpec", default={})),
            CORE + "PodSpec": thing(
                "containers",
                containers=listing("Container", "name"),
                initContainers=listing("Container", "name"),
                ephemeralContainers=listing("Container", "name"),
                volumes=listing("Volume", "name"),
            ),
            CORE + "Container": thing(
                "name", name=TEXT, image=TEXT, ports=listing("Port", "containerPort", "protocol")
            ),
            CORE + "Port": thing(
                "containerPort",
                containerPort={"type": "integer", "format": "int32", "default": 0},
                protocol={"type": "string", "default": "TCP", "enum": ["TCP", "UDP"]},
            ),
            CORE + "Volume": thing("name", name=TEXT, emptyDir=ref(CORE + "EmptyDir")),
            CORE + "EmptyDir": thing(sizeLimit={"$ref": f"#/components/schemas/{QUANTITY}"}),
            META + "ObjectMeta": thing(name=TEXT, managedFields={"type": "array", "items": {"type": "object"}}),
            QUANTITY: {"description": "text", "oneOf": [{"type": "string"}, {"type": "number"}]},
        }
    }
}


def test_template_metadata_allows_only_labels_and_annotations() -> None:
    metadata = template_schema(OPENAPI)["properties"]["metadata"]
    assert set(metadata["properties"]) == {"labels", "annotations"}


def test_template_requires_containers_and_their_images() -> None:
    template = template_schema(OPENAPI)
    assert template["required"] == ["spec"]
    pod = template["properties"]["spec"]
    assert pod["required"] == ["containers"]
    assert pod["properties"]["containers"]["minItems"] == 1
    assert "minItems" not in pod["properties"]["initContainers"]
    for name in ("containers", "initContainers"):
        assert pod["properties"][name]["items"]["required"] == ["image", "name"]
    assert "ephemeralContainers" not in pod["properties"]


def test_descriptions_references_and_patch_keys_are_gone() -> None:
    text = str([template_schema(OPENAPI), volume_schema(OPENAPI)])
    for word in ("description", "$ref", "allOf", "oneOf", "x-kubernetes-patch"):
        assert word not in text


def test_only_a_list_key_that_is_not_required_keeps_its_default() -> None:
    container = template_schema(OPENAPI)["properties"]["spec"]["properties"]["containers"]["items"]
    port = container["properties"]["ports"]["items"]
    assert port["properties"]["protocol"] == {"type": "string", "default": "TCP", "enum": ["TCP", "UDP"]}
    assert port["properties"]["containerPort"] == {"type": "integer", "format": "int32"}
    assert container["properties"]["name"] == {"type": "string", "minLength": 1}


def test_a_volume_is_its_source_without_a_name() -> None:
    volume = volume_schema(OPENAPI)
    assert set(volume["properties"]) == {"emptyDir"}
    assert "required" not in volume
    limit = volume["properties"]["emptyDir"]["properties"]["sizeLimit"]
    assert limit["x-kubernetes-int-or-string"] is True
    assert "pattern" in limit
