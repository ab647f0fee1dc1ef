//! The addresses of buckets, and the sources of their keys.

use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use url::Url;

use crate::error::Error;

/// Timeout of a request for a whole object on a slow link.
const TIMEOUT: &str = "300 seconds";

type Settings = BTreeMap<String, String>;

/// An object store, the path in it, and the folder of this machine that it is, if it is one.
type Opened = (Arc<dyn ObjectStore>, Path, Option<PathBuf>);

/// Opens the object store that an address names.
pub fn open(address: &str) -> Result<Opened, Error> {
    let wrong = |why: String| Error::Address { address: address.into(), why };
    let url = match Url::parse(address) {
        Ok(url) if url.scheme() == "file" => {
            let path = url
                .to_file_path()
                .map_err(|()| wrong("a folder needs an absolute path, as in file:///backups".into()))?;
            return folder(&path).map_err(wrong);
        }
        Ok(url)
            if matches!(url.scheme(), "s3" | "s3a" | "gs" | "az" | "abfs" | "abfss" | "azure" | "https") =>
        {
            url
        }
        // Without `://` the address is a path, even if it begins like `c:`.
        Ok(url) if address.contains("://") => {
            return Err(wrong(format!(
                "{} is not a known kind of bucket; use s3://, gs://, az:// or a folder",
                url.scheme()
            )));
        }
        _ => return folder(FilePath::new(address)).map_err(wrong),
    };
    let mut settings: Settings = std::env::vars_os()
        .filter_map(|(name, value)| {
            Some((name.into_string().ok()?.to_ascii_lowercase(), value.into_string().ok()?))
        })
        .filter(|(name, _)| ["aws_", "google_", "azure_"].iter().any(|of| name.starts_with(of)))
        .collect();
    if url.scheme().starts_with("s3") && !settings.contains_key("aws_access_key_id") {
        profile(&mut settings).map_err(wrong)?;
    }
    settings.entry("timeout".into()).or_insert_with(|| TIMEOUT.into());
    let endpoint = settings.get("aws_endpoint_url").or(settings.get("aws_endpoint"));
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
        // A caller that names an HTTP endpoint wants HTTP.
        settings.entry("aws_allow_http".into()).or_insert_with(|| "true".into());
    }
    #[cfg(feature = "https")]
    provide_cryptography();
    let (store, path) =
        object_store::parse_url_opts(&url, settings).map_err(|error| wrong(error.to_string()))?;
    Ok((Arc::from(store), path, None))
}

/// Installs a provider of cryptography for TLS, unless the program installed its own.
#[cfg(feature = "https")]
fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have installed one first; that provider works as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn folder(path: &FilePath) -> Result<Opened, String> {
    if path.exists() && !path.is_dir() {
        return Err("it is not a folder: choose another name".to_owned());
    }
    std::fs::create_dir_all(path)
        .map_err(|error| format!("the folder does not exist and cannot be created: {error}"))?;
    let store = LocalFileSystem::new_with_prefix(path).map_err(|error| error.to_string())?;
    // A relative path must not lead elsewhere later.
    let path = path.canonicalize().map_err(|error| error.to_string())?;
    Ok((Arc::new(store.with_fsync(true).with_automatic_cleanup(true)), Path::default(), Some(path)))
}

/// Takes keys, region and endpoint from the current profile in the files of the AWS tools.
fn profile(settings: &mut Settings) -> Result<(), String> {
    let home = |name: &str| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".aws").join(name));
    let file = |variable: &str, name: &str| {
        settings.get(variable).map(PathBuf::from).or_else(|| home(name)).filter(|path| path.exists())
    };
    let read = |path: Option<PathBuf>| {
        let read = |path: PathBuf| {
            ini::Ini::load_from_file(&path).map_err(|error| format!("reading {}: {error}", path.display()))
        };
        path.map(read).transpose()
    };
    let keys = read(file("aws_shared_credentials_file", "credentials"))?;
    let config = read(file("aws_config_file", "config"))?;
    take_profile(settings, keys.as_ref(), config.as_ref())
}

fn take_profile(
    settings: &mut Settings,
    keys: Option<&ini::Ini>,
    config: Option<&ini::Ini>,
) -> Result<(), String> {
    let named = settings.get("aws_profile").cloned();
    let name = named.as_deref().unwrap_or("default");
    let keys = keys.and_then(|file| file.section(Some(name)));
    let config = config
        .and_then(|file| file.section(Some(format!("profile {name}"))).or_else(|| file.section(Some(name))));
    if named.is_some() && keys.is_none() && config.is_none() {
        return Err(format!("profile {name}, named by AWS_PROFILE, does not exist"));
    }
    let find = |key: &str| [keys, config].into_iter().flatten().find_map(|section| section.get(key));
    if find("aws_access_key_id").is_none() {
        let other = ["sso_session", "sso_start_url", "role_arn", "credential_process"];
        if let Some(key) = other.into_iter().find(|key| find(key).is_some()) {
            return Err(format!(
                "profile {name} gets its keys by {key}, which Brooklet does not read: put the keys into the environment first, by \
                 `eval \"$(aws configure export-credentials --profile {name} --format env)\"`"
            ));
        }
    }
    let wanted = [
        ("aws_access_key_id", "aws_access_key_id"),
        ("aws_secret_access_key", "aws_secret_access_key"),
        ("aws_session_token", "aws_session_token"),
        ("region", "aws_region"),
        ("endpoint_url", "aws_endpoint_url"),
    ];
    for (key, setting) in wanted {
        if let Some(value) = find(key) {
            settings.entry(setting.into()).or_insert_with(|| value.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(profile: Option<&str>, keys: &str, config: &str) -> Result<Settings, String> {
        let mut settings = Settings::new();
        settings.extend(profile.map(|name| ("aws_profile".to_string(), name.to_string())));
        let [keys, config] = [keys, config].map(|text| ini::Ini::load_from_str(text).unwrap());
        take_profile(&mut settings, Some(&keys), Some(&config)).map(|()| settings)
    }

    #[test]
    fn profiles_give_keys_region_and_endpoint() {
        let keys =
            "[default]\naws_access_key_id = a\naws_secret_access_key = b\n[other]\naws_access_key_id = c\n";
        let config =
            "[default]\nregion = here\n[profile other]\nregion = there\nendpoint_url = http://there\n";
        let of = |settings: Settings, key: &str| settings.get(key).cloned().unwrap_or_default();
        let default = taken(None, keys, config).unwrap();
        assert_eq!(
            (of(default.clone(), "aws_access_key_id"), of(default, "aws_region")),
            ("a".into(), "here".into())
        );
        let other = taken(Some("other"), keys, config).unwrap();
        assert_eq!(
            (of(other.clone(), "aws_access_key_id"), of(other.clone(), "aws_region")),
            ("c".into(), "there".into())
        );
        assert_eq!(of(other, "aws_endpoint_url"), "http://there");
        assert!(taken(Some("nobody"), keys, config).unwrap_err().contains("nobody"));
        let sso = taken(Some("sso"), keys, "[profile sso]\nsso_session = us\n").unwrap_err();
        assert!(sso.contains("sso_session") && sso.contains("export-credentials"), "{sso}");
    }

    #[test]
    fn what_is_no_bucket_is_told_apart() {
        let refused = |address: &str| match open(address) {
            Err(Error::Address { why, .. }) => why,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("{address} was taken"),
        };
        assert!(refused("ftp://host/there").contains("ftp is not a known kind of bucket"));
        assert!(refused("/dev/null/there").contains("the folder does not exist and cannot be created"));
        assert_eq!(refused("/dev/null"), "it is not a folder: choose another name");
        let dir = tempfile::tempdir().unwrap();
        assert!(open(dir.path().join("new").to_str().unwrap()).is_ok());
        assert!(dir.path().join("new").is_dir());
    }
}
